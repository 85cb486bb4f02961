"""Factorised decisions on single observations: their acceptance probability, densities, and bounds that do not hold."""

from __future__ import annotations

import pickle
import tracemalloc
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from generators import capsule
from numpy.typing import NDArray

from stansub import _loop
from stansub._loop import Decider
from stansub.acceptance.decide import make_decider
from stansub.acceptance.rules import Factorised, StoppingRule
from stansub.acceptance.rules import Poisson as JointDecisions
from stansub.target import observations
from stansub.target.categories import Categorical, Ordered
from stansub.target.dispersion import Gamma, NegativeBinomial2
from stansub.target.families import Binomial, Logistic, NegativeBinomial, Normal, Poisson, StudentT
from stansub.target.functions import FunctionFactors
from stansub.target.location_scale import ExtremeErrors, LocationScale, LogisticErrors, NormalErrors, StudentErrors
from stansub.target.observations import ObservationVariates
from stansub.target.remainders import LARGEST, Family, LinearPredictors
from stansub.target.rows import ColumnRows
from stansub.target.sites import Site

Array = NDArray[np.float64]
N, DIM = 60, 2


@dataclass(frozen=True)
class Regression:
    """A regression with a standard normal prior, and its variates about a point near the mode."""

    factors: FunctionFactors
    predictors: LinearPredictors
    anchor: Array
    cholesky: Array
    order: int
    source: str

    @classmethod
    def make(cls, family: str = "binomial", n: int = N, order: int = 2, *, source: str = "table") -> Regression:
        rng = np.random.default_rng(3)
        z = rng.standard_normal((n, DIM)) * np.where(np.arange(n) == 7, 4.0, 1.0)[:, np.newaxis]
        eta = z @ [0.5, -0.3]
        made: Family = Binomial((rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float), np.ones(n))
        if family == "poisson":
            made = Poisson(rng.poisson(np.exp(eta)).astype(float), np.ones(n))
        # as columns of the data, from which rows are computed: candidates are then drawn in batches
        design = ColumnRows(z.shape, ((slice(0, DIM), z),)) if source == "stream" else z
        predictors = LinearPredictors((design,), (np.full(n, 0.1),), made)
        factors = FunctionFactors(
            ["a", "b"],
            n,
            lambda theta, which: made.log_lik(predictors.at(theta))[which],
            log_density=lambda theta: -0.5 * float(theta @ theta),
            block_size=4,
        )
        anchor = np.array([0.4, -0.2])
        hessian = predictors.hessian_at(anchor)
        cholesky = np.linalg.cholesky(np.linalg.inv(np.eye(DIM) - hessian))
        return cls(factors, predictors, anchor, cholesky, order, source)

    @property
    def way(self) -> observations._Way:
        return observations._Way.of(self.predictors, self.order, screened=self.source == "screen")

    def at(self, w: tuple[float, float]) -> Array:
        return np.asarray(self.anchor + self.cholesky @ w)

    def variates(self, threads: int = 1) -> ObservationVariates:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(observations, "_best_way", lambda *_: self.way)
            patch.setattr(observations, "_MOST_STREAMED", np.inf)
            return ObservationVariates.at(self.predictors, self.anchor, self.cholesky, threads=threads)

    def decider(self, theta: Array) -> Decider:
        parts = self.variates().parts(self.factors)
        made = make_decider(self.factors.evaluator(), self.factors.blocks.sizes, Factorised(), **parts)
        made.reset(theta)
        return made

    def remainders(self, theta: Array, proposed: Array) -> Array:
        family, eta = self.predictors.family, self.predictors.at(self.anchor)
        a, b = (self.predictors.at(point) - eta for point in (theta, proposed))
        gradient, hessian, third = family.derivatives((1, 2, 3), eta)
        expansion = gradient[0] * (b - a)[0] + 0.5 * hessian[0, 0] * (b**2 - a**2)[0]
        if self.order == 3:
            expansion += third * (b**3 - a**3)[0] / 6
        return np.asarray(family.log_lik(eta + b) - family.log_lik(eta + a) - expansion)

    def acceptance(self, theta: Array, proposed: Array, *, by_all: bool = False) -> float:
        """min(1, e^S) prod_i exp(-max(0, -r_i)) for a symmetric proposal, Metropolis-Hastings' if all are evaluated."""
        r, family = self.remainders(theta, proposed), self.predictors.family
        likelihood = (family.log_lik(self.predictors.at(proposed)) - family.log_lik(self.predictors.at(theta))).sum()
        surrogate = self.factors.log_density(proposed) - self.factors.log_density(theta)
        prior = 0.5 * float(theta @ theta - proposed @ proposed)
        assert surrogate == pytest.approx(likelihood + prior)
        if by_all:
            return float(np.exp(min(0.0, surrogate)))
        return float(np.exp(min(0.0, surrogate - r.sum()) - np.maximum(0, -r).sum()))


def rate(model: Regression, theta: Array, proposed: Array, n: int) -> float:
    rng, decider, accepted = np.random.default_rng(5), model.decider(theta), 0
    for _ in range(n):
        decision = decider.decide(proposed, np.log1p(-rng.random()), 0.0, rng.bit_generator.capsule)
        accepted += decision.accepted
        if decision.accepted:
            decider.reset(theta)
    return accepted / n


def wander(model: Regression, decider: Decider, n: int) -> None:
    """Decisions between independent draws of the normal approximation, of which the expansions reject none."""
    rng = np.random.default_rng(1)
    for _ in range(n):
        decider.reset(model.at(tuple(rng.standard_normal(DIM))))
        proposed = model.at(tuple(rng.standard_normal(DIM)))
        decider.decide(proposed, -np.inf, 0.0, rng.bit_generator.capsule)


SOURCES = ["table", "stream", "screen"]
WAYS = [
    (2, "table"),
    (3, "stream"),
    (2, "screen"),
    *(pytest.param(*way, marks=pytest.mark.slow) for way in ((3, "table"), (2, "stream"), (3, "screen"))),
]
MOVES = [((2.0, 1.5), (0.3, -0.8)), ((2.0, 2.0), (-2.0, 1.0)), ((1.5, 1.0), (-1.5, -1.0))]


def ways_and_moves() -> list[Any]:
    """Every way with every family and move; each way has one of these in quick runs, which each have two."""
    ways = list(product(SOURCES, ["thinning", "all"], [2, 3]))
    moves = list(product(["binomial", "poisson"], range(len(MOVES))))
    return [
        pytest.param(*way, *move, marks=() if i % len(moves) == j else pytest.mark.slow)
        for i, way in enumerate(ways)
        for j, move in enumerate(moves)
    ]


@pytest.mark.parametrize(("source", "evaluation", "order", "family", "move"), ways_and_moves())
def test_acceptance_probability(
    source: str, evaluation: str, order: int, family: str, move: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (start, end), share = MOVES[move], {"thinning": 1e9, "all": 0.0}[evaluation]
    monkeypatch.setattr(observations, "SHARE", share)
    model, n = Regression.make(family, order=order, source=source), 20_000 if share or source != "stream" else 1000
    theta, proposed = model.at(start), model.at(end)
    ways = [model.acceptance(theta, proposed, by_all=by_all) for by_all in (share == 0, share > 0)]
    assert min(ways) > 0.02
    found = rate(model, theta, proposed, n)
    right, wrong = (abs(found - one) / np.sqrt(max(one * (1 - one), 1 / n) / n) for one in ways)
    assert right < 4.5
    assert wrong > 4.5 or order == 3 or n < 20_000  # which leaves less


def without_bounds(places: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let some of the observations of a `Regression` have no bound."""
    constants = LinearPredictors.constants

    def some(self: LinearPredictors, *args: Any, **more: Any) -> Array:
        found = constants(self, *args, **more)
        if len(found) == N:
            found[places] = LARGEST
        return found

    monkeypatch.setattr(LinearPredictors, "constants", some)


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("source", SOURCES)
def test_observations_without_a_bound_are_in_every_decision(
    source: str, order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their remainders are in the log ratio, and in no product; streams evaluate all observations."""
    monkeypatch.setattr(observations, "SHARE", 1e9 if source != "stream" else 0.3)
    unbounded, (start, end), n = [3, 7, 40], MOVES[1], 50_000 if source != "stream" else 1000
    model = Regression.make("poisson", order=order, source=source)
    theta, proposed = model.at(start), model.at(end)
    without_bounds(unbounded, monkeypatch)
    r = model.remainders(theta, proposed)
    log_ratio = model.factors.log_density(proposed) - model.factors.log_density(theta)
    bounded = np.delete(r, unbounded)
    expected, wrong = (
        np.exp(min(0.0, log_ratio - sum_of) - np.maximum(0, -bounded).sum()) for sum_of in (bounded.sum(), r.sum())
    )
    if source == "stream":
        expected = model.acceptance(theta, proposed, by_all=True)
    found = rate(model, theta, proposed, n)
    assert abs(found - expected) < 4.5 * np.sqrt(expected * (1 - expected) / n)
    assert abs(found - wrong) > 4.5 * np.sqrt(wrong * (1 - wrong) / n) or order == 3
    decider = model.decider(theta)
    decision = decider.decide(proposed, -0.1, 0.0, capsule(np.random.default_rng(1)))
    assert decision.n_obs_used >= (len(unbounded) if source != "stream" else N)
    if source != "stream":
        assert np.isfinite(model.variates().expected)
        assert model.variates().expected > len(unbounded)


def test_with_many_observations_without_a_bound_all_are_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    without_bounds(list(range(N // 2)), monkeypatch)
    model = Regression.make()
    assert model.variates().expected > 1e200
    decider = model.decider(model.anchor)
    wander(model, decider, 10)
    assert decider.n_obs_used == 10 * N


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_detailed_balance(family: str, order: int) -> None:
    model = Regression.make(family, order=order)
    for start, end in MOVES:
        theta, proposed = model.at(start), model.at(end)
        ratio = np.log(model.acceptance(theta, proposed)) - np.log(model.acceptance(proposed, theta))
        assert ratio == pytest.approx(model.factors.log_density(proposed) - model.factors.log_density(theta), abs=1e-9)


@pytest.mark.parametrize("order", [2, 3])
def test_few_likelihoods_are_evaluated_where_bounds_are_near(order: int) -> None:
    model = Regression.make(n=1000, order=order)
    decider = model.decider(model.anchor)
    wander(model, decider, 20_000)
    assert 0 < decider.n_evaluated < 1.5 * decider.n_candidates, "both ends of fewer than three quarters"
    assert decider.n_candidates == decider.n_obs_used
    assert 0.5 < decider.bound_tightness <= 1


@pytest.mark.parametrize(("order", "source"), WAYS)
def test_expected_candidates(order: int, source: str) -> None:
    model = Regression.make(n=400, order=order, source=source)
    decider, n = model.decider(model.anchor), 10_000
    variates = model.variates()
    assert variates.order == order
    wander(model, decider, n)
    # first rejections end a few of them early
    assert decider.n_candidates / n == pytest.approx(variates.expected, rel=0.1)


@pytest.mark.parametrize(("order", "source"), WAYS)
def test_a_violated_bound_names_the_observation(order: int, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = LinearPredictors.constants

    def shrunk(self: LinearPredictors, *args: object, **more: object) -> Array:
        # classes of a stream have constants that are up to 9 % above those of their members
        return np.asarray((0.9 if source == "stream" else 0.99) * constants(self, *args, **more))  # type: ignore[arg-type]

    model = Regression.make(n=1000, order=order, source=source)
    wander(model, model.decider(model.anchor), 20_000)
    monkeypatch.setattr(LinearPredictors, "constants", shrunk)
    model = Regression.make(n=1000, order=order, source=source)  # predictors keep their classes
    decider = model.decider(model.anchor)
    with pytest.raises(RuntimeError, match=r"the remainder of observation [\d]+ is .*, and was proved to be at most"):
        wander(model, decider, 20_000)


@pytest.mark.parametrize("source", SOURCES)
def test_the_same_decisions_by_threads_and_after_a_pickle(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observations, "_SKETCHED", DIM if source == "screen" else 16)
    monkeypatch.setattr(observations, "_SCREENED", 0.0)
    model = Regression.make(n=40_000, source=source)  # several parts
    variates = model.variates(threads=2)
    model.factors.known_predictors = model.predictors
    found = []
    for one in (variates, pickle.loads(pickle.dumps(variates))):
        decider = make_decider(
            model.factors.evaluator(), model.factors.blocks.sizes, Factorised(), **one.parts(model.factors)
        )
        decider.reset(model.anchor)
        rng = np.random.default_rng(1)
        moves = rng.standard_normal((200, DIM))
        found.append(
            [
                decider.decide(model.at(tuple(w)), np.log(u), 0.0, rng.bit_generator.capsule).log_ratio
                for w, u in zip(moves, rng.random(200), strict=True)
            ]
        )
    assert found[0] == found[1]


@pytest.mark.parametrize(("source", "least", "most"), [("table", 48, 200), ("stream", 4, 24)])
def test_memory_of_an_observation(source: str, least: int, most: int) -> None:
    n = 400_000
    model = Regression.make(n=n, order=2, source=source)
    tracemalloc.start()
    try:
        kept = model.variates()
        peak = tracemalloc.get_traced_memory()[1] / n
    finally:
        tracemalloc.stop()
    assert kept.expected > 0
    assert least < peak < most, "bytes at the peak, beside data and designs"


def test_decisions_go_on_from_the_candidates_that_were_drawn_ahead() -> None:
    model = Regression.make(n=1000, source="stream")
    first = model.decider(model.anchor)
    wander(model, first, 300)
    assert first.n_candidates % 1024 > 0, "in the middle of a batch"
    other = model.decider(model.anchor)
    other.state = first.state
    found = []
    for decider in (first, other):
        rng = np.random.default_rng(8)
        moves = rng.standard_normal((2000, DIM))
        decisions = [decider.decide(model.at(tuple(w)), -np.inf, 0.0, rng.bit_generator.capsule) for w in moves]
        found.append([(one.accepted, one.log_ratio, one.n_looks) for one in decisions])
    assert found[0] == found[1]


@pytest.mark.parametrize("dim", [1, 2, 4])
def test_third_derivatives_of_the_sum(dim: int) -> None:
    rng, n = np.random.default_rng(6), 5000
    z, family = rng.standard_normal((n, dim)), Poisson(rng.poisson(2.0, n).astype(float), np.ones(n))
    predictors = LinearPredictors((z,), (np.zeros(n),), family)
    eta, d = predictors.at(np.full(dim, 0.1)), rng.standard_normal(dim)
    kept = [(j, k, m) for j in range(dim) for k in range(j + 1) for m in range(k + 1)]
    (third,) = family.derivatives((3,), eta)
    cubic = sum(value * d[j] * d[k] * d[m] for value, (j, k, m) in zip(predictors.third(third), kept, strict=True))
    assert cubic == pytest.approx(float(third @ (z @ d) ** 3))


def test_the_third_order_is_taken_where_it_saves_more_than_its_cubic_costs() -> None:
    rng = np.random.default_rng(7)

    def order(n: int, dim: int) -> int:
        z = rng.standard_normal((n, dim))
        predictors = LinearPredictors((z,), (np.zeros(n),), Binomial(rng.integers(0, 2, n).astype(float), np.ones(n)))
        hessian = predictors.hessian_at(np.zeros(dim))
        cholesky = np.linalg.cholesky(np.linalg.inv(np.eye(dim) - hessian))
        return ObservationVariates.at(predictors, np.zeros(dim), cholesky).order

    assert order(2000, 10) == 3
    assert order(100_000, 2) == 2


def families(rng: np.random.Generator, n: int) -> list[Family]:
    counts, scale, y = rng.poisson(3.0, n).astype(float), rng.gamma(3.0, size=n) + 0.1, rng.standard_normal(n)
    return [
        Binomial(np.minimum(counts, 5.0), np.full(n, 5.0)),
        Poisson(counts, scale),
        NegativeBinomial(counts, scale),
        Normal(y, scale),
        StudentT(y, scale + 1, scale),
        Logistic(y, scale),
        *(
            LocationScale(y, law)
            for law in (NormalErrors(), StudentErrors(scale + 1), LogisticErrors(), ExtremeErrors())
        ),
        LocationScale(y, StudentErrors(np.array([3.0]))),
        NegativeBinomial2(counts),
        NegativeBinomial2(100 * counts),
        Gamma(scale),
        Categorical(rng.integers(4, size=n), 4),
        Ordered(rng.integers(4, size=n), 4),
        Ordered(rng.integers(2, size=n), 2),
    ]


@pytest.mark.parametrize("place", range(17))
def test_densities_are_those_of_the_families(place: int) -> None:
    rng, n = np.random.default_rng(2), 50
    family = families(rng, n)[place]
    spread = 3 if family.n_arguments == 1 else 1
    one, other = rng.normal(scale=spread, size=(2, family.n_arguments, n))
    assert family.density is not None

    def by_loop(eta: Array) -> Array:
        columns = zip(np.stack(family.data, axis=1), eta.T.copy(), strict=True)
        return np.array([_loop.density_log_lik(family.density, data, at) for data, at in columns])

    np.testing.assert_allclose(
        by_loop(one) - by_loop(other), family.log_lik(one) - family.log_lik(other), rtol=1e-11, atol=1e-11
    )


def test_what_does_not_fit_is_refused() -> None:
    model = Regression.make()
    loop = ObservationVariates.at(model.predictors, model.anchor, model.cholesky).parts(model.factors)["observations"]
    few = replace(model, factors=Regression.make(n=N - 4).factors)
    with pytest.raises(ValueError, match="must be as many"):
        make_decider(few.factors.evaluator(), few.factors.blocks.sizes, Factorised(), observations=loop)


def test_designs_must_fit() -> None:
    n, dim = 5, 2
    records, anchor, square = np.ones((n, 7)), np.zeros(dim), np.eye(dim)

    def made(*designs: Array) -> _loop.Observations:
        parts = (anchor, square, anchor, square, np.empty(0), np.ones(1), np.ones(1), 0.3)
        return _loop.Observations(_loop.Density.binomial, designs, records, *parts)

    made(np.ones((n, dim)))
    made(np.ones((1, dim)))
    for wrong in (np.ones((n - 1, dim)), np.ones((n, dim + 1)), np.ones((1, dim + 1))):
        with pytest.raises(ValueError, match="a design must have a row"):
            made(wrong)
    # a copy of it would not outlive the call
    with pytest.raises(TypeError):
        made(np.ones((dim, n)).T)


def test_a_design_in_another_order_in_memory() -> None:
    model = Regression.make(n=40)
    turned = replace(model.predictors, design=tuple(np.asfortranarray(z) for z in model.predictors.design))
    theta, proposed = model.at((0.5, 1.0)), model.at((-1.0, 0.3))
    one, other = (replace(model, predictors=known) for known in (model.predictors, turned))
    rates = [rate(each, theta, proposed, 500) for each in (one, other)]
    assert rates[0] == rates[1]


@dataclass(frozen=True)
class LongRows:
    """Logistic errors in twenty parameters, perhaps with a scale that all observations share."""

    predictors: LinearPredictors
    factors: FunctionFactors
    cholesky: Array
    n: int = 400
    dim: int = 20

    @classmethod
    def make(cls, *, shared: bool) -> LongRows:
        rng, n, dim = np.random.default_rng(4), cls.n, cls.dim
        z = rng.standard_normal((n, dim)) * rng.gamma(1.0, size=(n, 1))
        z[3], y = 0.0, rng.standard_normal(n)
        family: Family = LocationScale(y, LogisticErrors()) if shared else Logistic(y, np.ones(n))
        scale = np.eye(dim)[:1] if shared else None
        design, offset = (z,) if scale is None else (z - z[:, :1] * scale, scale), (np.zeros(n), np.zeros(1))
        predictors = LinearPredictors(design, offset[: 1 + shared], family)
        factors = FunctionFactors(
            [f"theta.{k}" for k in range(1, dim + 1)], n, lambda theta, which: np.zeros(len(which))
        )
        hessian = predictors.hessian_at(np.zeros(dim))
        return cls(predictors, factors, np.linalg.cholesky(np.linalg.inv(np.eye(dim) - hessian)))

    def log_lik(self, theta: Array) -> float:
        return float(self.predictors.family.log_lik(self.predictors.at(theta)).sum())

    def decider(self, rule: StoppingRule) -> Decider:
        parts = ObservationVariates.at(self.predictors, np.zeros(self.dim), self.cholesky).parts(self.factors)
        decider = make_decider(self.factors.evaluator(), self.factors.blocks.sizes, rule, **parts)
        decider.reset(np.zeros(self.dim))
        return decider


@pytest.mark.parametrize("rule", [Factorised(), JointDecisions(kappa=2)], ids=["factorised", "joint"])
@pytest.mark.parametrize("shared", [False, True], ids=["one argument", "a shared one too"])
def test_rows_of_16_bits_change_no_decision(rule: StoppingRule, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """They send most candidates away; those that they leave are the same."""
    model = LongRows.make(shared=shared)
    monkeypatch.setattr(observations, "_MOST_SCREENED", 0)

    def decisions(sketched: int) -> list[tuple[bool, int, int, float]]:
        monkeypatch.setattr(observations, "_SKETCHED", sketched)
        monkeypatch.setattr(observations, "_SHARE_SKETCHED", 1e9)
        monkeypatch.setattr(observations, "SHARE", 1e9)
        decider, steps = model.decider(rule), np.random.default_rng(1)
        found = []
        for w in 0.7 * steps.standard_normal((400, model.dim)):
            one = decider.decide(model.cholesky @ w, np.log(steps.random()), 0.0, steps.bit_generator.capsule)
            found.append((one.accepted, one.n_obs_used, one.n_looks, one.log_ratio))
        return found

    sketched = decisions(model.dim)
    assert sketched == decisions(model.dim + 1)
    picked, looked = (sum(one[k] for one in sketched) for k in (1, 2))
    assert 50 < 5 * looked < picked


@pytest.mark.parametrize(
    ("rule", "shared", "order"),
    [
        pytest.param(rule, shared, order, marks=() if (rule.name, shared, order) in quick else pytest.mark.slow)
        for quick in [{("factorised", False, 2), ("poisson", False, 3)}]
        for rule in (Factorised(), JointDecisions(kappa=2))
        for shared, order in ((False, 2), (False, 3), (True, 2))
    ],
)
def test_screened_decisions_are_as_likely_and_take_few_candidates(
    rule: StoppingRule, shared: bool, order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = LongRows.make(shared=shared)
    monkeypatch.setattr(observations, "SHARE", 1e9)
    monkeypatch.setattr(observations, "_SHARE_SKETCHED", 1e9)
    monkeypatch.setattr(observations, "_CUBIC", -1e9 if order == 3 else 1e9)
    rng = np.random.default_rng(9)
    moves, n = rng.standard_normal((6, 2, model.dim)), 4000
    log_lik = [[model.log_lik(model.cholesky @ w) for w in ends] for ends in moves]
    level = [before - after for before, after in log_lik]  # remainders alone decide

    def rates(most: int, unit: float = _loop.SCREEN_UNIT) -> tuple[Array, float]:
        monkeypatch.setattr(observations, "_SCREENED", 0.0)
        monkeypatch.setattr(observations, "_MOST_SCREENED", most)
        monkeypatch.setattr(_loop, "SCREEN_UNIT", unit)
        decider = model.decider(rule)
        accepted = np.zeros(len(moves))
        for place, (a, b) in enumerate(moves @ model.cholesky.T):
            for u in np.log(rng.random(n)):
                decider.reset(a)
                accepted[place] += decider.decide(b, u, level[place], rng.bit_generator.capsule).accepted
        assert (decider.n_screened > 0) == (most > 0)
        return accepted / n, decider.n_candidates / decider.n_decisions

    (table, many), (screened, few) = rates(0), rates(1000)
    assert few < many / 5
    pooled = (table + screened) / 2
    assert ((pooled > 0.1) & (pooled < 0.9)).sum() >= 3
    errors = np.sqrt(2 * np.maximum(pooled * (1 - pooled), 0.01) / n)
    assert (np.abs(table - screened) < 4.5 * errors).all()
    wrong, _ = rates(1000, _loop.SCREEN_UNIT / 9)
    assert (np.abs(table - wrong) > 4.5 * errors).any(), "bounds of rows that are too short"


def test_a_batch_of_candidates_takes_no_memory_for_the_others() -> None:
    """Records of ten observations out of many: less memory than a byte for each of these."""
    made = Regression.make(n=400_000, source="stream")
    which = np.arange(10, dtype=np.int32)
    site = Site(made.anchor, made.cholesky)
    site.records(made.predictors, 2, which)
    tracemalloc.start()
    records, _ = site.records(made.predictors, 2, which)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(records) == 10
    assert peak < 400_000
