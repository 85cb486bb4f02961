"""Decisions about some of the factors, exactly as if there were no others."""

import pickle
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from stansub import FunctionFactors
from stansub._loop import Decider, Decision, Subset, Surrogate, Table
from stansub.acceptance import subsets
from stansub.acceptance.decide import make_decider
from stansub.acceptance.ranges import Derivative, Estimate, Lipschitz, Range, Scan
from stansub.acceptance.rules import Exact, Geometric, StoppingRule, make_test
from stansub.acceptance.subsets import loop_table

Array = NDArray[np.float64]
X = np.random.default_rng(1).normal(0.2, 1, (400, 2))
SOME = np.random.default_rng(2).permutation(400)[:150].astype(np.int32)
ANCHOR = np.array([0.2, 0.2])
SMALL = Geometric(first=8)
FIELDS = ("accepted", "log_ratio", "n_obs_used", "n_looks", "undecided", "audited", "wrong", "bound_violated")
RANGES = {"lipschitz": Lipschitz(6.0), "scan": Scan(), "estimate": Estimate()}


def regression(x: Array) -> FunctionFactors:
    """Successes, each a factor, and a normal prior."""

    def slopes(theta: Array, which: NDArray[np.int32]) -> Array:
        return x[which] / (1 + np.exp(x[which] @ theta))[:, np.newaxis]

    return FunctionFactors(
        ["beta.1", "beta.2"],
        len(x),
        lambda theta, which: -np.logaddexp(0, -x[which] @ theta),
        log_density=lambda theta: float(-0.5 * (theta**2).sum()),
        log_lik_gradient=slopes,
        log_density_gradient=lambda theta: -theta,
    )


def subset(rule: StoppingRule, which: NDArray[np.integer], *, level: float | None = None) -> Subset:
    return subsets.subset(which, partial(loop_table, rule, level=level))


def surrogate_of(model: FunctionFactors, order: int) -> Surrogate:
    rows = np.empty((len(model.blocks), (2, 5)[order - 1]), np.float32)
    model.evaluator().block_taylor(ANCHOR, np.arange(len(rows), dtype=np.int32), order, rows)
    return Surrogate([ANCHOR], (rows,))


def decider(x: Array, test: StoppingRule, spread: Range | None = None, order: int = 0) -> Decider:
    model = regression(x)
    surrogate = surrogate_of(model, order) if order else None
    made = make_decider(model.evaluator(), model.blocks.sizes, test, spread=spread, surrogate=surrogate)
    made.reset(ANCHOR)
    return made


def decisions(one: Decider, n: int, among: Subset | None, seed: int = 3) -> Iterator[Decision]:
    rng = np.random.default_rng(seed)
    for step in range(n):
        proposed = one.theta + 0.1 * rng.standard_normal(2)
        yield one.decide(
            proposed, np.log1p(-rng.random()), 0.0, rng.bit_generator.capsule, audit=step % 5 == 0, subset=among
        )


def same(found: Decision, wanted: Decision) -> None:
    for field in FIELDS:
        assert getattr(found, field) == getattr(wanted, field), field
    assert found.standard_error == wanted.standard_error
    np.testing.assert_equal(found.audit_z, wanted.audit_z)


EACH = [("pocock", None), ("austerity", None), ("barker", None), ("penalty", None), ("exact", None)]
EACH += [("bernstein", source) for source in RANGES]


@pytest.mark.parametrize(
    ("name", "source", "order"),
    [
        pytest.param(name, source, order, marks=() if (order + i) % 2 else pytest.mark.slow)
        for i, (name, source) in enumerate(EACH)
        for order in (0, 1, 2)
    ],
)
def test_as_if_there_were_no_others(name: str, source: str | None, order: int) -> None:
    test = make_test(name, looks=None if name == "exact" else SMALL)
    spread = RANGES[source] if source else None
    whole, part = decider(X, test, spread, order), decider(X[SOME], test, spread, order)
    used = 0
    for found, wanted in zip(decisions(whole, 60, subset(test, SOME)), decisions(part, 60, None), strict=True):
        same(found, wanted)
        used += found.n_obs_used
    np.testing.assert_array_equal(whole.theta, part.theta)
    for counter in ("n_obs_used", "n_accepted", "n_evaluated", "n_evaluated_extra", "n_fallback", "n_bound_violated"):
        assert getattr(whole, counter) == getattr(part, counter)
    assert whole.n_obs_used == used <= 60 * 150
    assert 0 < whole.n_accepted < 60
    assert name in ("exact", "bernstein") or used < 60 * 150  # some decisions fall early


def test_with_bounds_on_remainders() -> None:
    test = make_test("bernstein", looks=SMALL)
    for found, wanted in zip(
        decisions(decider(X, test, Derivative(0.4, 2), 2), 40, subset(test, SOME)),
        decisions(decider(X[SOME], test, Derivative(0.4, 2), 2), 40, None),
        strict=True,
    ):
        same(found, wanted)


def test_other_factors_would_be_seen() -> None:
    """The negative control: with a factor more, decisions are others."""
    test = make_test("pocock", looks=SMALL)
    more = np.append(SOME, np.setdiff1d(np.arange(400), SOME)[:1]).astype(np.int32)
    found = [one.log_ratio for one in decisions(decider(X, test), 20, subset(test, more))]
    assert found != [one.log_ratio for one in decisions(decider(X[SOME], test), 20, None)]


def test_without_factors_the_rest_decides_and_no_data_are_used() -> None:
    none, test = np.empty(0, np.int32), make_test("pocock")
    made, rng = decider(X, test, order=2), np.random.default_rng(4)
    state = rng.bit_generator.state
    for log_u, accepted in ((-0.3, True), (-0.1, False)):
        made.reset(np.zeros(2))
        got = made.decide(
            np.array([0.6, 0.0]), log_u, 0.0, rng.bit_generator.capsule, audit=True, subset=subset(test, none)
        )
        assert (got.accepted, got.n_obs_used, got.n_looks, got.wrong) == (accepted, 0, 0, False)
        assert got.log_ratio == pytest.approx(-0.18)
    assert made.n_evaluated == made.n_evaluated_extra == made.n_obs_used == 0
    assert made.n_decisions == 2
    assert rng.bit_generator.state == state


def test_subsets_that_change_from_step_to_step() -> None:
    """With exact decisions: each log ratio is that of its own subset."""
    made, rng = decider(X, Exact()), np.random.default_rng(5)
    for _ in range(50):
        which = rng.permutation(400)[: rng.integers(0, 400)].astype(np.int32)
        theta, proposed = made.theta, made.theta + 0.1 * rng.standard_normal(2)
        got = made.decide(
            proposed, np.log1p(-rng.random()), 0.0, rng.bit_generator.capsule, subset=subset(Exact(), which)
        )
        parts = [-np.logaddexp(0, -X[which] @ at).sum() - 0.5 * (at**2).sum() for at in (proposed, theta)]
        assert got.log_ratio == pytest.approx(parts[0] - parts[1], abs=1e-10)
        assert got.n_obs_used == which.size


def test_the_state_has_the_subset_too() -> None:
    test = make_test("pocock", looks=SMALL)
    whole, first, second = (decider(X, test) for _ in range(3))
    wanted = list(decisions(whole, 30, subset(test, SOME)))
    rng = np.random.default_rng(3)

    def go(one: Decider, n: int) -> list[Decision]:
        found = []
        for _ in range(n):
            proposed = one.theta + 0.1 * rng.standard_normal(2)
            audit = one.n_decisions % 5 == 0
            log_u = np.log1p(-rng.random())
            found.append(one.decide(proposed, log_u, 0.0, rng.bit_generator.capsule, audit, subset(test, SOME)))
        return found

    found = go(first, 13)
    second.state = pickle.loads(pickle.dumps(first.state))
    found += go(second, 17)
    for one, other in zip(found, wanted, strict=True):
        same(one, other)


def test_a_level_of_its_own() -> None:
    test = make_test("pocock", looks=SMALL)
    used = [
        sum(one.n_obs_used for one in decisions(decider(X, test), 40, subset(test, SOME, level=level)))
        for level in (None, 0.4, 0.0)
    ]
    assert used[1] < used[0] < used[2] == 40 * 150


def test_subsets_must_fit() -> None:
    made, rng = decider(X, make_test("pocock")), np.random.default_rng(1)
    for which in ([400], [-1], [3, 3]):
        wrong = subset(Exact(), np.array(which))
        with pytest.raises(ValueError, match="does not exist or is given twice"):
            made.decide(ANCHOR, -1.0, 0.0, rng.bit_generator.capsule, subset=wrong)
    one = Table(np.array([2], np.int32), np.zeros(1), np.zeros(1))
    with pytest.raises(ValueError, match="all blocks of the subset"):
        Subset(np.arange(3, dtype=np.int32), one)
    with pytest.raises(ValueError, match="only an empty subset"):
        Subset(np.arange(3, dtype=np.int32), None)
    ranged = Table(np.array([2, 3], np.int32), np.zeros(2), np.ones(2))
    with pytest.raises(ValueError, match="needs a source of the range"):
        made.decide(ANCHOR, -1.0, 0.0, rng.bit_generator.capsule, subset=Subset(np.arange(3, dtype=np.int32), ranged))
