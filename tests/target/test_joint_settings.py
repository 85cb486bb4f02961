"""Settings of joint decisions: the most effective draws in a time, and reasons to use all observations."""

import re
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from recording import Limited
from scipy.special import expit

from stansub.progress import TimeLimitError
from stansub.target import group_candidates, joint_settings
from stansub.target.families import Binomial
from stansub.target.group_candidates import _lengths, _whitening, furthest
from stansub.target.joint_settings import Times, choose_joint
from stansub.target.location_scale import LocationScale, NormalErrors
from stansub.target.rows import Rows
from stansub.target.sparse import SparsePredictors, SparseRows, columns_of

Array = NDArray[np.float64]
N, J = 4000, 6
M = 2 + J
MANY, RATES, SQUARES = 10**6, np.array([20.0, 30.0, 60.0]), np.array([2.0, 3.0, 5.0])


def likelihood(kind: str) -> SparsePredictors:
    import scipy.sparse as sp

    rng = np.random.default_rng(1)
    x, g = rng.standard_normal(N), 2 + rng.integers(J, size=N)
    levels = sp.csr_array((np.ones(N), g, np.arange(N + 1)), shape=(N, M))
    row = SparseRows(np.column_stack([np.ones(N), x]), np.array([0, 1]), columns_of(levels), np.zeros(1), N, M)
    eta = row(rng.normal(0, 0.4, M))
    if kind == "binomial":
        return SparsePredictors((row,), Binomial((rng.random(N) < expit(eta)).astype(float), np.ones(N)))
    return SparsePredictors((row, row), LocationScale(eta + rng.standard_normal(N), NormalErrors()))


def draws(sd: float, n: int = 8) -> tuple[Array, list[Array], Array]:
    rng = np.random.default_rng(2)
    return np.zeros(M), [sd * rng.standard_normal(M) for _ in range(n)], np.full(M, sd)


def test_the_time_limit_ends_the_bounds_on_all_observations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_candidates, "_AT_ONCE", 100)
    predictors = likelihood("location-scale")
    point, phis, sds = draws(0.01)
    whole = choose_joint(
        predictors, quadratic := predictors.expansion(point), sds, phis, check=(counting := Limited()).check
    )
    assert counting.n_checks >= N // 100
    for n in range(0, counting.n_checks, 7):
        predictors.latest.clear()
        with pytest.raises(TimeLimitError):
            choose_joint(predictors, quadratic, sds, phis, check=Limited(n).check)
    monkeypatch.undo()
    predictors.latest.clear()
    assert choose_joint(predictors, quadratic, sds, phis) == whole, "bounds do not depend on how many are made at once"


def test_kappa_makes_the_most_effective_draws_in_a_time() -> None:
    for microseconds in (0.0, 100.0, 1e5):
        joint, fewest = joint_settings._best(RATES, SQUARES, MANY, 0.1, Times(1e4, 0.2, microseconds))
        assert joint is not None
        assert joint.candidates == pytest.approx((joint.kappa + 0.5) * RATES.mean())
        assert fewest <= (joint.kappa + 0.5) * np.median(RATES)

        def merit(kappa: float, microseconds: float = microseconds) -> float:
            accepted = joint_settings._accepted(2 * 0.1**2 + SQUARES / kappa).mean()
            time = microseconds + 0.2 * (kappa + 0.5) * RATES.mean()
            return float(1.4 * accepted / (2 - 1.4 * accepted) / time) if accepted >= 0.8 else 0.0

        assert merit(joint.kappa) == max(merit(float(kappa)) for kappa in joint_settings._KAPPAS[:24])
    cheap, dear = (joint_settings._best(RATES, SQUARES, MANY, 0.1, Times(1e4, 0.2, time))[0] for time in (0.0, 1e5))
    assert cheap is not None
    assert dear is not None
    assert dear.kappa > cheap.kappa, "a dear proposal is worth a more precise decision"


def test_all_observations_are_used_if_that_makes_more_draws() -> None:
    for pass_time, is_better in ((1e4, True), (100.0, False)):
        joint, _ = joint_settings._best(RATES, SQUARES, MANY, 0.1, Times(pass_time, 0.2, 50.0))
        assert (joint is not None) == is_better
    # With more candidates than 0.3 of the observations, all would be evaluated at random.
    few = int(60 * 1.5 / 0.3) - 1
    assert joint_settings._best(RATES, SQUARES, few, 0.1, Times(1e4, 0.2, 50.0))[0] is None
    # If bounds are wider than all observations, no kappa helps.
    joint, fewest = joint_settings._best(1e6 * RATES, SQUARES, MANY, 0.1, Times(1e4, 0.2, 50.0))
    assert joint is None
    assert fewest >= 1e6 * np.median(RATES)


@pytest.mark.parametrize(
    ("kind", "sd", "reason"),
    [
        ("binomial", 0.22, r"a test on some would draw about \d+ of the 4,000 at random, .* as long as 20 in order"),
        ("normal", 0.03, r"a test on some would draw about [\d,]+ of the 4,000 at random, .* as long as 13 in order"),
        ("normal", 0.2, "so wide that a test on some would evaluate all of them"),
    ],
)
def test_reasons_for_all_observations(kind: str, sd: float, reason: str) -> None:
    predictors, (point, places, sds) = likelihood(kind), draws(sd)
    quadratic = predictors.expansion(point)
    few = choose_joint(predictors, quadratic, sds, places)
    assert few.joint is None
    assert re.search(reason, few.reason)
    if "evaluate all" in reason:
        return
    # Remainders are of the third order.
    point, places, sds = draws(sd / 4)
    near = choose_joint(predictors, quadratic, sds, places)
    assert near.joint is not None
    assert not near.reason
    if kind == "normal":
        assert near.joint.radius == pytest.approx(1.2 * furthest(predictors, quadratic, sds, places).max(axis=0))


def test_the_reason_is_another_one_if_a_test_on_some_would_save_time() -> None:
    """Where moves are dear, rejecting more of them costs more than a decision from all observations."""
    predictors, (point, places, sds) = likelihood("binomial"), draws(0.1)
    quadratic = predictors.expansion(point)
    dear = choose_joint(predictors, quadratic, sds, places, microseconds=1e5)
    assert dear.joint is None
    assert re.search(r"would draw about \d+ of the 4,000 at random, but the moves that it rejects", dear.reason)


def test_bounds_that_only_small_boxes_have() -> None:
    """Boxes are as large as most draws need if larger ones have no bounds."""
    predictors, (point, places, sds) = likelihood("normal"), draws(0.0075, 60)
    quadratic = predictors.expansion(point)
    limit = furthest(predictors, quadratic, sds, places)
    places[-1] *= 1.4 * float((limit.max(axis=0) / limit[-1]).max())
    far = furthest(predictors, quadratic, sds, places).max(axis=0)

    lengths = [_lengths(row, _whitening(row, quadratic), sds).max() for row in predictors.rows]

    class Bounded(LocationScale):
        most = 1.1 * far * lengths

        def part(self, rows: Rows) -> LocationScale:
            return Bounded(self.y[rows], self.errors.part(rows))

        def by_argument(self, order: int, centre: Array, lengths: Array, radius: float) -> Array:
            found = super().by_argument(order, centre, lengths, radius)
            return found if ((lengths * radius).max(axis=1) < self.most).all() else np.full_like(found, np.inf)

    assert isinstance(predictors.family, LocationScale)
    family = Bounded(predictors.family.y, predictors.family.errors)
    found = choose_joint(replace(predictors, family=family, latest=[]), quadratic, sds, places)
    assert found.joint is not None
    assert found.joint.radius == pytest.approx(0.8 * far)
    Bounded.most = 0.0 * far
    found = choose_joint(replace(predictors, family=family, latest=[]), quadratic, sds, places)
    assert found.joint is None
    assert "have no bound" in found.reason
