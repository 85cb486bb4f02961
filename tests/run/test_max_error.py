"""The decision error a user accepts: what it sets, what is audited for it, and what speaks against draws."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import stansub
from stansub import Austerity, CompiledModel, DrawsWarning, Exact, Fixed, Geometric, InputError, Pocock, cli
from stansub.acceptance.student import MAX_POCOCK_LOOKS, level_of_looks
from stansub.decision_selection import ErrorAudited, ErrorNotAudited
from stansub.output import inference_data
from stansub.run import choices, decisions
from stansub.run import sample as run
from stansub.selection import Chosen

EXAMPLES = Path(__file__).parents[2] / "stan_models"
SHORT: dict[str, Any] = {"chains": 3, "iter_warmup": 60, "iter_sampling": 80, "seed": 5, "show_progress": False}


def chosen(name: str | None, max_error: float | None, **options: Any) -> Any:
    settings = {"epsilon": None, "delta": None, "looks": None, "first_look": None} | options
    return decisions.choose_test(name, max_error=max_error, **settings)


def test_it_is_the_error_of_a_whole_decision() -> None:
    assert chosen(None, 0.02) == chosen("pocock", 0.02) == Pocock(epsilon=0.02)
    for name in ("hoeffding", "bernstein", "bernstein-serfling"):
        assert chosen(name, 0.02).delta == 0.02
    assert chosen("exact", 0.02) == Exact()
    assert chosen("pocock", 0.02, first_look=10).looks.first == 10


@pytest.mark.parametrize("looks", [Geometric(first=50), Geometric(first=20, growth=1.2), Fixed(size=100)])
def test_looks_of_austerity_share_it(looks: Any) -> None:
    """With the level found for it austerity is Pocock's test; at the level itself its error is larger."""
    shared = Austerity(epsilon=0.02, looks=looks).of_a_decision(0.02, 2000)
    pocock = Pocock(epsilon=0.02, looks=looks).table(2000)
    np.testing.assert_allclose(shared.table(2000).scale, pocock.scale, rtol=1e-6)
    assert (Austerity(epsilon=0.02, looks=looks).table(2000).scale[:-1] < 0.95 * pocock.scale[:-1]).all()


def test_of_many_looks_each_has_its_part_and_a_single_one_all() -> None:
    n = 10 * (MAX_POCOCK_LOOKS + 5)
    assert level_of_looks(0.02, Fixed(size=10), n) == pytest.approx(0.02 / (MAX_POCOCK_LOOKS + 4))
    assert level_of_looks(0.02, Fixed(size=500), 600) == 0.02
    assert Pocock().of_a_decision(0.02, 2000) == Pocock()
    assert Exact().of_a_decision(0.02, 2000) == Exact()
    assert chosen("austerity", None) == Austerity()


def not_audited(n_audits: int | None, n_steps: int) -> ErrorNotAudited:
    return ErrorNotAudited(max_error=0.001, n_needed=3810, n_audits=n_audits, n_passes=7620, share=3810 / n_steps)


@pytest.mark.parametrize("max_error", [0.008, 0.002])
def test_audits_can_tell_it(max_error: float) -> None:
    n_steps = 10**6
    share, audits = choices.audit_within(max_error, n_steps, 1000)
    assert isinstance(audits, ErrorAudited)
    assert "can verify it" in audits.describe()
    # The number drawn: enough nearly always, and not half as many again.
    n = np.round(binom(n_steps, share).ppf([0.03, 0.5]))
    assert 1 - 0.025 ** (1 / n[0]) <= max_error
    assert 1 - 0.025 ** (1 / (0.7 * n[1])) > max_error


@pytest.mark.parametrize(
    ("max_error", "n_steps", "n", "audits", "text"),
    [
        (
            0.01,
            40_000,
            10**6,
            ErrorAudited(max_error=0.01, n_audits=407, n_passes=814),
            "407 audits, at most 814 passes",
        ),
        (0.1, 40_000, 10**6, ErrorAudited(max_error=0.1, n_audits=100), "100 audits can verify it"),
        (
            0.001,
            40_000,
            10**6,
            not_audited(100, 40_000),
            "cannot verify it; verifying it with 95 % confidence takes 3,810, 7,620 passes over the data",
        ),
        (0.001, 2000, 10**3, not_audited(None, 2000), "takes 3,810 audits, more than there are decisions"),
    ],
)
def test_what_is_audited_for_it_is_recorded(max_error: float, n_steps: int, n: int, audits: Chosen, text: str) -> None:
    share, found = choices.audit_within(max_error, n_steps, n)
    assert found == audits
    assert text in found.describe()
    assert share >= choices.choose_audit(None, n_steps, n)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_error": 0.01, "epsilon": 0.1}, "give only one of the three"),
        ({"max_error": 0.01, "test": "bernstein", "delta": 0.1}, "give only one of the three"),
        ({"max_error": 0.01, "test": Pocock()}, "a test given as an object has"),
        ({"max_error": 0.0}, "between 0 and 1"),
        ({"max_error": 1.0}, "between 0 and 1"),
        ({"max_error": float("nan")}, "between 0 and 1"),
    ],
    ids=str,
)
def test_what_it_does_not_go_with(
    logistic: CompiledModel, logistic_data: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        stansub.sample(logistic, logistic_data, **SHORT, **options)


def test_from_end_to_end(logistic: CompiledModel, logistic_data: dict[str, Any]) -> None:
    idata = stansub.sample(logistic, logistic_data, max_error=0.05, **(SHORT | {"iter_sampling": 1000}))
    facts = inference_data.attrs(idata)
    assert (facts["epsilon"], facts["settings"]["max_error"], facts["normality"]["promised"]) == (0.05, 0.05, 0.05)
    assert facts["choice_values"]["max error"]["kind"] == "ErrorAudited"
    assert "can verify it with 95 % confidence" in facts["choices"]["max error"]
    assert 60 < sum(facts["n_audited"]) < 140
    given = stansub.sample(logistic, logistic_data, max_error=0.05, audit=0.5, **SHORT)
    assert "max error" not in (inference_data.attrs(given)["choices"] or {})


def test_what_speaks_against_draws_stays_with_them(
    logistic: CompiledModel, logistic_data: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.warns(DrawsWarning, match=r"ESS .* is below 300"):
        idata = stansub.sample(logistic, logistic_data, **SHORT)
    lines = idata.attrs["warnings"].splitlines()
    assert any("ESS" in line and "`iter_sampling=" in line for line in lines)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DrawsWarning)
        good = stansub.sample(logistic, logistic_data, **(SHORT | {"iter_sampling": 3000, "iter_warmup": 200}))
    assert good.attrs["warnings"] == ""

    data, draws = tmp_path / "data.json", tmp_path / "draws.nc"
    data.write_text(json.dumps({name: np.asarray(value).tolist() for name, value in logistic_data.items()}))
    options = [
        "--chains",
        "3",
        "--iter-warmup",
        "60",
        "--iter-sampling",
        "80",
        "--seed",
        "5",
        "-q",
        "--output",
        str(draws),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error", DrawsWarning)
        with pytest.raises(SystemExit) as ended:
            cli.main(["sample", str(EXAMPLES / "logistic.stan"), str(data), *options, "--output", str(draws)])
    assert ended.value.code == 0
    printed = capsys.readouterr()
    stored = inference_data.read(draws).attrs["warnings"].splitlines()
    assert stored
    after = printed.out[printed.out.index("(R-hat ") :]
    assert after.count("Warning: ") == len(stored)


def test_draws_that_cannot_be_checked_are_returned(
    logistic: CompiledModel, logistic_data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Any) -> None:
        raise ZeroDivisionError("no draws per nothing")

    monkeypatch.setattr(run, "summarise", broken)
    with pytest.warns(DrawsWarning, match=r"not checked \(no draws per nothing\)"):
        idata = stansub.sample(logistic, logistic_data, **SHORT)
    assert "not checked" in idata.attrs["warnings"]
