"""Whether another formulation has the same posterior."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stansub.errors import InputError
from stansub.nuts import equivalence
from stansub.nuts.base import Program
from stansub.nuts.reference import reference
from stansub.output import inference_data
from stansub.stan.data.data import read

MODELS = Path(__file__).parents[2] / "stan_models"
LOGISTIC = Program.read(MODELS / "logistic.stan")
PARTIAL_SUMS = Program.read(MODELS / "logistic_third_derivative.stan")
OTHER_PRIOR = Program("other_prior", LOGISTIC.code.replace("alpha ~ normal(0, 2.5)", "alpha ~ normal(0, 2.4)"))


def data() -> dict[str, Any]:
    rng = np.random.default_rng(2)
    return {"N": 2000, "K": 2, "y": rng.integers(0, 2, 2000), "x": rng.standard_normal((2000, 2))}


def check(one: Program, two: Program, values: dict[str, Any]) -> str:
    given = [read(values, program.syntax.data.declarations) for program in (one, two)]
    return equivalence.check(one, given[0], two, given[1], log=lambda text: None)


@pytest.mark.slow
def test_another_way_of_writing_the_likelihood_is_accepted() -> None:
    assert check(LOGISTIC, PARTIAL_SUMS, data()).startswith(
        "checked: the log densities of logistic and logistic_third_derivative differ by a constant"
    )


@pytest.mark.slow
def test_another_prior_is_refused_with_figures() -> None:
    assert LOGISTIC.code != OTHER_PRIOR.code
    with pytest.raises(
        InputError, match=r"other_prior does not have the posterior of logistic: at 4 .* differ by 0\.0\d+, "
    ):
        check(LOGISTIC, OTHER_PRIOR, data())


def test_other_data_are_found_apart() -> None:
    given = read(data(), LOGISTIC.syntax.data.declarations)
    other = read(data() | {"y": 1 - data()["y"]}, LOGISTIC.syntax.data.declarations)
    with pytest.raises(InputError, match="does not have the posterior of logistic"):
        equivalence.check(LOGISTIC, given, LOGISTIC, other, log=lambda text: None)


@pytest.mark.slow
def test_other_parameters_cannot_be_checked() -> None:
    values = {"N": 20, "y": np.random.default_rng(1).normal(0, 1, 20), "sigma": 1.0}
    found = check(Program.read(MODELS / "normal_mean.stan"), Program.read(MODELS / "normal.stan"), values)
    assert found == "not checked: the parameters of normal_mean and normal differ"


def test_the_reference_is_of_the_model_though_another_was_run() -> None:
    made = reference(
        LOGISTIC,
        data(),
        engine="nutpie",
        reference_model=PARTIAL_SUMS,
        chains=1,
        seed=1,
        iter_warmup=100,
        iter_sampling=50,
    )
    facts = inference_data.attrs(made)
    assert (facts["reference_for"], facts["model_hash"]) == (LOGISTIC.hash, PARTIAL_SUMS.hash)
    assert (facts["model"], facts["reference_model"]) == ("logistic", "logistic_third_derivative")
    assert facts["model_code"] == PARTIAL_SUMS.code
    assert facts["data_hash"] == read(data(), LOGISTIC.syntax.data.declarations).digest()
    assert facts["equivalence"].startswith("checked")
