"""The verdict: how often it is a false alarm, what it catches, and what it says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import stansub
from stansub.diagnostics.comparison import compare_draws
from stansub.diagnostics.verdict import Verdict

FloatArray = NDArray[np.float64]
Change = Callable[[FloatArray], Any]

# Near-independent draws as NUTS makes them, and random walks of moderate and of usual length.
SAMPLERS: dict[str, dict[str, Any]] = {
    "independent": {},
    "correlated": {"autocorrelation": 0.75},
    "random walk": {"autocorrelation": 0.95, "draws": 10_000},
}


def verdict(seed: int, change: Change | None = None, *, level: float = 0.01, size: int = 4, **shape: Any) -> Verdict:
    rng = np.random.default_rng(seed)
    draws = fakes.draws(rng, change=change, size=size, **shape)
    return compare_draws(draws, fakes.reference(rng, size=size), level=level).verdict


def false_alarms(n: int, change: Change | None = None, **options: Any) -> int:
    return sum(verdict(1000 + seed, change, **options).word != "agrees" for seed in range(n))


def skewed(values: FloatArray) -> None:
    """A log-normal quantity beside normal ones, as scale parameters are."""
    values[:, :, 1] = np.exp(0.5 * values[:, :, 1])


def without_order(values: FloatArray) -> None:
    """Hide the autocorrelation, so that Monte Carlo errors come out too small."""
    rng = np.random.default_rng(5)
    values[:] = rng.permuted(values.reshape(-1, values.shape[2]), axis=0).reshape(values.shape)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["independent", "correlated"])
def test_false_alarms(sampler: str) -> None:
    """A level at which 60 pairs tell something; the binomial limit of 99.9 %."""
    assert false_alarms(60, level=0.2, size=3, **SAMPLERS[sampler]) <= stats.binom.isf(0.001, 60, 0.2)


@pytest.mark.slow
def test_errors_that_ignore_autocorrelation_raise_false_alarms() -> None:
    assert false_alarms(15, without_order, level=0.2, size=3, **SAMPLERS["correlated"]) > stats.binom.isf(
        0.001, 15, 0.2
    )


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_false_alarms_of_many_pairs(sampler: str) -> None:
    options = {"size": 6, **SAMPLERS[sampler]}
    alarms = [seed for seed in range(300) if verdict(1000 + seed, level=0.2, **options).word != "agrees"]
    # What is significant at 0.01 is so at 0.2.
    grave = [seed for seed in alarms if verdict(1000 + seed, level=0.01, **options).word != "agrees"]
    assert len(alarms) <= stats.binom.isf(0.001, 300, 0.2)
    assert len(grave) <= stats.binom.isf(0.001, 300, 0.01)


@pytest.mark.slow
def test_false_alarms_with_a_skewed_quantity() -> None:
    alarms = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        draws = fakes.draws(rng, change=skewed, **SAMPLERS["random walk"])
        alarms += compare_draws(draws, fakes.reference(rng, change=skewed), level=0.2).verdict.word != "agrees"
    assert alarms <= stats.binom.isf(0.001, 300, 0.2)


def bimodal(values: FloatArray) -> None:
    """Two modes, mean 0 and sd 1 as before."""
    side = np.random.default_rng(6).choice([-0.9, 0.9], values.shape[:2])
    values[:, :, 1] = side + np.sqrt(1 - 0.81) * values[:, :, 1]


def heavy_tailed(values: FloatArray) -> None:
    """Student's t of 3 degrees of freedom, mean 0 and sd 1 as before."""
    values[:, :, 1] = stats.t.ppf(stats.norm.cdf(values[:, :, 1]), 3) / np.sqrt(3)


def torn(values: FloatArray) -> None:
    """Margins as before, one correlation of 0.5 gone."""
    values[:, :, 1] = np.random.default_rng(7).permuted(values[:, :, 1].ravel()).reshape(values.shape[:2])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(fakes.inflated(1.15), id="sds inflated by 15 %"),
        pytest.param(fakes.shifted(0.2), id="a mean shifted by 0.2 sd"),
        pytest.param(fakes.stuck(), id="a stuck chain", marks=pytest.mark.slow),
        pytest.param(bimodal, id="bimodal", marks=pytest.mark.slow),
        pytest.param(heavy_tailed, id="heavy-tailed", marks=pytest.mark.slow),
        pytest.param(torn, id="torn"),
    ],
)
def test_faults_are_caught_every_time(change: Change) -> None:
    assert all(verdict(seed, change, size=2).word != "agrees" for seed in range(20))


@pytest.mark.slow
@pytest.mark.parametrize("change", [fakes.inflated(1.2), fakes.shifted(0.25)], ids=["sds", "mean"])
def test_faults_of_a_random_walk_are_caught(change: Change) -> None:
    assert all(verdict(seed, change, **SAMPLERS["random walk"]).word != "agrees" for seed in range(20))


@pytest.mark.slow
def test_what_would_have_shown_shows() -> None:
    """A shift by the detectable difference is found with probability 0.9."""
    rng = np.random.default_rng(8)
    found = compare_draws(fakes.draws(rng, size=2), fakes.reference(rng, size=2))
    assert found.verdict.headline.startswith("agrees within Monte Carlo error: a difference of 0.1")
    shift = fakes.shifted(found.parameters.loc["beta[1]", "mean_detectable_sd"])
    found = sum(
        any(reason.startswith("Means differ: beta[1]") for reason in verdict(seed, shift, size=2).reasons)
        for seed in range(30)
    )
    assert stats.binom.ppf(0.001, 30, 0.9) <= found


def test_limits_hold_the_difference() -> None:
    rng = np.random.default_rng(9)
    found = compare_draws(fakes.draws(rng, change=fakes.shifted(0.3)), fakes.reference(rng))
    assert found.verdict.word == "differs"
    assert found.overall["mean_limit_sd"] > 0.3
    row = found.parameters.loc["beta[1]"]
    assert found.verdict.headline.startswith(f"differs: the mean of beta[1] by {row['mean_diff_sd']:+.2g} sd, the ")
    size = f"{row['mean_diff_sd']:+.2g} sd ({row['mean_z']:.1f} standard errors)"
    assert found.verdict.reasons[0] == f"Means differ: beta[1] by {size}."
    assert found.verdict.reasons[-1] == (
        f"No mean differs by more than {found.overall['mean_limit_sd']:.2g} sd and no sd by more than "
        f"{100 * found.overall['sd_limit']:.2g} % (99 % confidence)."
    )


def broken(value: float) -> Change:
    def change(values: FloatArray) -> None:
        values[2, 10, 1] = value

    return change


def constant(values: FloatArray) -> None:
    values[:, :, 1] = 0.5


@pytest.mark.parametrize(
    ("change", "headline"),
    [
        (fakes.stuck(2), "do not use: the draws' chain 3 is stuck"),
        (broken(np.nan), "do not use: the draws of beta[1] are not all finite"),
        (broken(np.inf), "do not use: the draws of beta[1] are not all finite"),
        (constant, "do not use: beta[1] never moves in the draws"),
        (fakes.shifted(1.2), "do not use: one mean off by more than 0.5 sd: +1"),
        (fakes.inflated(2.0), "do not use: 4 sds off by a factor of more than 1.5: "),
    ],
)
def test_unfit_draws(change: Change, headline: str) -> None:
    found = verdict(10, change)
    assert found.word == "do not use"
    assert found.headline.startswith(headline)
    assert found.reasons[0].lower().startswith(headline.removeprefix("do not use: ").lower())


def apart(values: FloatArray) -> None:
    values[0] += 1


def test_chains_that_do_not_agree() -> None:
    assert verdict(11, apart).headline.startswith("do not use: the chains have not converged: R-hat 1.")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"divergences": 3}, "3 of its 4,000 transitions diverged"),
        ({"change": apart}, "its chains have not converged, R-hat 1."),
        ({"change": broken(np.nan)}, "its draws of beta[1] are not all finite"),
        ({"change": fakes.stuck()}, "its chain 1 is stuck"),
        ({"change": constant}, "beta[1] never moves in its draws"),
    ],
)
def test_a_reference_not_to_be_trusted(options: dict[str, Any], reason: str) -> None:
    rng = np.random.default_rng(12)
    found = compare_draws(fakes.draws(rng), fakes.reference(rng, **options)).verdict
    assert found.word == "inconclusive"
    assert found.headline.startswith(f"inconclusive: the reference itself cannot be trusted: {reason}")


def test_draws_that_are_unfit_come_before_a_reference_not_to_be_trusted() -> None:
    rng = np.random.default_rng(12)
    found = compare_draws(fakes.draws(rng, change=fakes.stuck(2)), fakes.reference(rng, divergences=3)).verdict
    assert found.headline == "do not use: the draws' chain 3 is stuck"
    assert "The reference itself cannot be trusted: 3 of its 4,000 transitions diverged." in found.reasons


def test_divergences_of_a_reference_by_others_count() -> None:
    rng = np.random.default_rng(13)
    reference = fakes.reference(rng, divergences=2)
    del reference.attrs["n_divergences"]
    assert "2 of its 4,000" in compare_draws(fakes.draws(rng), reference).verdict.headline


def test_too_few_effective_draws() -> None:
    found = verdict(14, autocorrelation=0.9)
    assert found.word == "do not use"
    assert "too few effective draws" in found.headline
    assert found.headline.endswith("; sample longer")
    rng = np.random.default_rng(14)
    found = compare_draws(fakes.draws(rng), fakes.reference(rng, autocorrelation=0.9)).verdict
    assert found.word == "inconclusive"
    assert found.headline.endswith("; compare with a longer reference")


def test_constants_of_different_values() -> None:
    rng = np.random.default_rng(15)
    draws, reference = ({"c": np.full((4, 1000), value)} for value in (1.0, 2.0))
    found = compare_draws(fakes.draws(rng, more=draws), fakes.reference(rng, more=reference)).verdict
    assert found.headline == "do not use: c never moves, and has another value in the reference"


def test_draws_beside_themselves_are_no_comparison(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    values = fakes.normals(rng)
    draws, single = fakes.draws(rng, values=values), fakes.draws(rng, values=values.astype(np.float32))
    stansub.write_draws(draws, tmp_path / "draws.nc")
    reason = "the draws and the reference are the same draws: compare with an independent reference"
    for own, other in ((draws, draws), (tmp_path / "draws.nc", tmp_path / "draws.nc"), (draws, single)):
        found = stansub.compare(own, other).verdict
        assert (found.word, found.headline) == ("inconclusive", f"inconclusive: {reason}")
        assert found.reasons[0].lower() == f"{reason}."


def test_chains_that_both_sides_have_are_named_and_other_chains_are_not() -> None:
    rng = np.random.default_rng(1)
    values = fakes.normals(rng)
    other = np.concatenate([values[:2], fakes.normals(rng, chains=2)])
    found = compare_draws(fakes.draws(rng, values=values), fakes.reference(rng, values=other[::-1])).verdict
    assert found.headline.startswith("inconclusive: the draws and the reference have 2 chains in common")
    alike = compare_draws(fakes.draws(rng, values=values), fakes.reference(rng, values=values + 1e-3)).verdict
    assert alike.word == "agrees"


def test_one_chain_is_compared_with_a_remark() -> None:
    rng = np.random.default_rng(16)
    found = compare_draws(fakes.draws(rng, chains=1, draws=4000), fakes.reference(rng)).verdict
    assert found.word == "agrees"
    assert found.reasons == ("The draws have only one chain, so R-hat cannot show which regions it missed.",)


def test_wrong_decisions_are_a_reason_and_not_the_verdict() -> None:
    found = verdict(17, attrs={"n_audited": [500] * 4, "n_audit_wrong": [100] * 4})
    assert found.word == "agrees"
    assert found.reasons[0].startswith(
        "More audited decisions of the draws were wrong than the accepted error level allows"
    )


def test_chains_that_agree_roughly_are_a_reason() -> None:
    def slightly_apart(values: FloatArray) -> None:
        values[:, :, 1] += np.array([[-0.2], [0.2], [-0.2], [0.2]])

    reasons = verdict(18, slightly_apart, level=1e-9).reasons
    assert any(reason.startswith("The chains of the draws have barely converged: R-hat 1.0") for reason in reasons)


def test_draws_that_missed_a_mode_are_not_to_be_used_whatever_the_reference_says() -> None:
    """NUTS may have missed it too, and then both agree."""
    missed = {"share": 0.75, "log_density": -10.0, "above": 3.0, "values": {"mu[1]": [4.0, -1.0, 1.0]}}
    rng = np.random.default_rng(1)
    draws = fakes.draws(rng, attrs={"mode_check": {"missed": [missed], "interchangeable": [], "reason": ""}})
    found = compare_draws(draws, fakes.reference(rng)).verdict
    assert found.word == "do not use"
    assert found.headline == "do not use: the chains missed a mode that holds about 75 % of the posterior"
    assert compare_draws(fakes.draws(np.random.default_rng(1)), fakes.reference(rng)).verdict.word == "agrees"
