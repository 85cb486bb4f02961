"""A bound on third derivatives in the program: concentration bounds with control variates, from end to end."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stansub
from stansub import CompiledModel, InputError
from stansub.acceptance.ranges import DERIVATIVES, Derivative
from stansub.acceptance.rules import make_test
from stansub.decision_findings import RangeViolated
from stansub.output import inference_data
from stansub.output.checks import findings_of
from stansub.run import range_sources
from stansub.run.range_sources import RangeRequest, bounds_remainders
from stansub.stan.analysis import Analysis
from stansub.stan.syntax import parse

SHORT: dict[str, Any] = {"chains": 2, "iter_warmup": 50, "iter_sampling": 400, "seed": 5, "show_progress": False}


@pytest.fixture(scope="module")
def bounded() -> CompiledModel:
    return stansub.compile_model(Path(__file__).parents[2] / "stan_models" / "logistic_third_derivative.stan")


def test_the_constants_of_the_example(bounded: CompiledModel, logistic_data: dict[str, Any]) -> None:
    norms = np.sqrt(1 + np.sum(logistic_data["x"] ** 2, axis=1))
    for size in (1, 7):
        posterior = bounded.with_data(logistic_data, block_size=size, seed=1)
        order = posterior.order if posterior.order is not None else np.arange(2000)
        sums = np.add.reduceat((norms**3)[order], posterior.blocks.starts) / (6 * np.sqrt(3))
        assert posterior.constants(DERIVATIVES[2]).max() == pytest.approx(sums.max())


@pytest.mark.parametrize("name", ["bernstein", "bernstein-serfling", "hoeffding"])
def test_the_guarantee_stands_with_control_variates(
    bounded: CompiledModel, logistic_data: dict[str, Any], name: str
) -> None:
    idata = stansub.sample(bounded, logistic_data, test=name, audit=0.5, **SHORT)
    facts = inference_data.attrs(idata)
    assert facts["guarantee"] == "bound"
    assert (facts["settings"]["control_variates"], facts["settings"]["range_source"]) == (2, "derivative")
    chosen = {"kind": "VariatesAsAsked", "order": 2, "function": "log_lik_third_derivative_i"}
    assert facts["choice_values"]["control variates"] == chosen
    assert "log_lik_third_derivative_i bounds the remainders" in facts["choices"]["control variates"]
    assert sum(facts["n_bound_violated"]) == 0
    assert sum(facts["n_audited"]) > 300
    assert sum(facts["n_audit_wrong"]) <= 0.01 * sum(facts["n_audited"])


def test_a_constant_that_is_too_small_is_found(bounded: CompiledModel, logistic_data: dict[str, Any]) -> None:
    posterior = bounded.with_data(logistic_data, block_size=4, seed=1)
    right = range_sources.choose_range(make_test("bernstein"), posterior, "auto", order="auto")
    assert right.kind == "derivative"
    assert isinstance(right.source, Derivative)
    wrong = range_sources.Ranges("derivative", Derivative(right.source.constant / 100, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_sources, "choose_range", lambda *_, **__: wrong)
        idata = stansub.sample(posterior, test="bernstein", **SHORT)
    assert any(isinstance(finding, RangeViolated) for finding in findings_of(idata))


def test_what_does_not_go_together_is_refused(
    bounded: CompiledModel, logistic: CompiledModel, logistic_data: dict[str, Any]
) -> None:
    few = {"N": 300, "K": 2, "y": logistic_data["y"][:300], "x": logistic_data["x"][:300]}
    for program, options, message in (
        (bounded, {"control_variates": 0}, "no function that gives it without control variates"),
        (bounded, {"control_variates": 0, "range_source": "derivative"}, "needs control variates and a function"),
        (bounded, {"control_variates": 1, "range_source": "derivative"}, "log_lik_second_derivative_i"),
        (logistic, {"range_source": "derivative"}, "needs control variates and a function log_lik_third_derivative_i"),
        (bounded, {"test": "pocock", "range_source": "derivative"}, "does not use a range"),
    ):
        with pytest.raises(InputError, match=message):
            stansub.sample(program, few, **{"test": "bernstein", **SHORT, **options})


@pytest.mark.parametrize(
    ("functions", "orders"),
    [
        (("second", "third"), {"auto": 2, "0": 0, "1": 1, "2": 2}),
        (("third",), {"auto": 2, "0": 0, "1": 0, "2": 2}),
        (("second",), {"auto": 1, "0": 0, "1": 1, "2": 0}),
        ((), {"auto": 0, "1": 0, "2": 0}),
    ],
)
def test_the_order_is_that_of_the_bound(functions: tuple[str, ...], orders: dict[str, int]) -> None:
    written = " ".join(f"real log_lik_{which}_derivative_i(int i) {{ return 1; }}" for which in functions)
    code = f"functions {{ {written} }} parameters {{ real mu; }} model {{ mu ~ normal(0, 1); }}"
    analysis = Analysis.of(parse(code))
    for order, expected in orders.items():
        program = RangeRequest(analysis, order)
        assert program.bounded == expected
        for kind in ("auto", "derivative"):
            assert bounds_remainders(make_test("bernstein"), program, kind) is (expected > 0)
        assert not bounds_remainders(make_test("bernstein"), program, "scan")
        assert not bounds_remainders(make_test("pocock"), program, "auto")


def test_blocks_are_small_where_remainders_are_bounded() -> None:
    for variates, size in ((False, 1), (True, 32)):
        assert make_test("bernstein").block_size(10**5, instances=False, variates=variates) == size


PREDICTED = """data {{ int N; vector[N] x; array[N] int y; }} parameters {{ real a; real b; }}
model {{ {statement} }}"""


@pytest.mark.parametrize(
    ("statement", "functions", "options", "expected"),
    [
        ("y ~ bernoulli_logit(a + b * x);", "", {}, True),
        ("y ~ bernoulli_logit(a + b * x);", "", {"order": "1"}, True),
        ("y ~ bernoulli_logit(a + b * x);", "", {"order": "0"}, False),
        ("y ~ bernoulli_logit(a + b * x);", "", {"kind": "scan"}, False),
        ("y ~ bernoulli_logit(a + b * x);", "real log_lik_lipschitz_i(int i) { return 1; }", {}, False),
        ("y ~ bernoulli_logit(a + b * x);", "real log_lik_third_derivative_i(int i) { return 1; }", {}, False),
        ("x ~ double_exponential(a, exp(b));", "", {}, False),
        ("x ~ double_exponential(a, exp(b));", "", {"known": True}, True),
    ],
)
def test_predictors_give_the_range_where_no_function_does(
    statement: str, functions: str, options: dict[str, Any], expected: bool
) -> None:
    written = f"functions {{ {functions} }} " if functions else ""
    program = parse(written + PREDICTED.format(statement=statement))
    asked = {"order": "auto", "kind": "auto", "known": False} | options
    found = RangeRequest(Analysis.of(program), asked["order"], asked["known"])
    source = range_sources.source(asked["kind"], found)
    assert (source is not None and source.name == "predictors") is expected
    assert not bounds_remainders(make_test("pocock"), found, asked["kind"])
