"""Joint decisions by Poisson variables: their acceptance probability, detailed balance, and the posterior itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import arviz as az
import numpy as np
import pytest
import scipy
from numpy.typing import NDArray

from stansub._loop import Decider, Decision
from stansub.acceptance.decide import make_decider
from stansub.acceptance.rules import Factorised, Poisson, StoppingRule, make_test
from stansub.acceptance.subsets import loop_table
from stansub.errors import InputError
from stansub.kernels.base import BatchControl, Records
from stansub.kernels.metropolis import MetropolisHastings
from stansub.kernels.proposals import laplace_pcn
from stansub.target import observations
from stansub.target.families import Binomial
from stansub.target.functions import FunctionFactors
from stansub.target.observations import ObservationVariates
from stansub.target.remainders import LinearPredictors
from stansub.target.taylor import build

Array = NDArray[np.float64]
KAPPAS = (0.5, 1.0, 4.0)
# For tests that take seconds: one of them; the others are slow.
FEW_KAPPAS = [pytest.param(kappa, marks=() if kappa == 1.0 else pytest.mark.slow) for kappa in KAPPAS]
# Hits of one factor that are enumerated.
MOST = 32
# In Monte Carlo standard errors; what is wrong must be as many off.
MAX_Z, WRONG_Z = 4.5, 10.0


@dataclass(frozen=True)
class Model:
    """Logistic regression with standard normal priors, expanded to second order about a point.

    Factors are single observations, or blocks of a size.
    """

    z: Array
    y: Array
    anchor: Array
    size: int | None

    @classmethod
    def make(cls, z: Array, y: Array, size: int | None = None) -> Model:
        """The expansion is about a point one posterior sd from the mode."""
        made = cls(z, y, np.zeros(z.shape[1]), size)
        made = replace(made, anchor=scipy.optimize.minimize(lambda theta: -made.log_density(theta), made.anchor).x)
        return replace(made, anchor=made.at(np.full(z.shape[1], z.shape[1] ** -0.5)))

    @classmethod
    def few(cls, n: int, size: int | None = None) -> Model:
        """Of two parameters, and no more observations than can be enumerated."""
        rng = np.random.default_rng(2)
        return cls.make(1.4 * rng.standard_normal((n, 2)), (rng.random(n) < 0.5).astype(float), size)

    def at(self, w: Array) -> Array:
        """w posterior sds from the anchor."""
        return np.asarray(self.anchor + w @ self.cholesky.T)

    def log_lik(self, theta: Array) -> Array:
        """Of each observation, shape (..., n)."""
        eta = theta @ self.z.T
        return np.asarray(self.y * eta - np.logaddexp(0, eta))

    def log_density(self, theta: Array) -> Array:
        return np.asarray(self.log_lik(theta).sum(-1) - 0.5 * (theta**2).sum(-1))

    @cached_property
    def slope_and_curve(self) -> tuple[Array, Array]:
        """Of the observations' log likelihoods in their predictors, at the anchor."""
        p = scipy.special.expit(self.z @ self.anchor)
        return self.y - p, p * (1 - p)

    @cached_property
    def cholesky(self) -> Array:
        information = (self.z * self.slope_and_curve[1][:, np.newaxis]).T @ self.z + np.eye(len(self.anchor))
        return np.asarray(np.linalg.cholesky(np.linalg.inv(information)))

    @cached_property
    def predictors(self) -> LinearPredictors:
        return LinearPredictors((self.z,), (np.zeros(len(self.y)),), Binomial(self.y, np.ones(len(self.y))))

    @cached_property
    def factors(self) -> FunctionFactors:
        def slope(theta: Array, which: NDArray[np.int32]) -> Array:
            return np.asarray((self.y - scipy.special.expit(self.z @ theta))[which, np.newaxis] * self.z[which])

        return FunctionFactors(
            [f"theta.{k}" for k in range(1, len(self.anchor) + 1)],
            len(self.y),
            lambda theta, which: self.log_lik(theta)[which],
            log_density=lambda theta: -0.5 * float(theta @ theta),
            log_lik_gradient=slope,
            log_density_gradient=lambda theta: -theta,
            block_size=self.size or 1,
        )

    def by_factor(self, each: Array) -> Array:
        return np.add.reduceat(each, self.factors.blocks.starts, axis=-1)

    def remainders(self, theta: Array, proposed: Array) -> Array:
        """Of each factor, shape (..., M)."""
        slope, curve = self.slope_and_curve

        def left(at: Array) -> Array:
            change = (at - self.anchor) @ self.z.T
            return self.log_lik(at) - slope * change + 0.5 * curve * change**2

        return self.by_factor(left(proposed) - left(theta))

    @cached_property
    def constants(self) -> Array:
        """Of observations' remainders, by radius, shape (k, n)."""
        known = self.predictors
        at, lengths = known.at(self.anchor), known.lengths(self.cholesky)
        return np.array([known.constants(at, lengths, radius) for radius in known.radii()])

    def bounds(self, theta: Array, proposed: Array) -> Array:
        """Of each factor, shape (..., M)."""
        length = [
            np.linalg.norm((at - self.anchor) @ np.linalg.inv(self.cholesky).T, axis=-1) for at in (theta, proposed)
        ]
        level = np.searchsorted(self.predictors.radii(), np.maximum(*length))
        if self.size is not None:
            lengths = (length[0] ** 3 + length[1] ** 3)[..., np.newaxis]
            return np.asarray(self.by_factor(self.constants)[level] * lengths)
        worst = np.maximum.accumulate((self.constants / self.constants[0]).max(1))[level][..., np.newaxis]
        own = self.predictors.lengths(self.cholesky)[0]
        moves = [np.abs((at - self.anchor) @ self.z.T) / own for at in (theta, proposed)]
        return np.asarray(worst * self.constants[0] * (moves[0] ** 3 + moves[1] ** 3))

    def decider(
        self, rule: StoppingRule, theta: Array, *, shrunk: float = 1.0, proved: bool = True, share: float = 1e9
    ) -> Decider:
        """Decisions by thinning wherever there are bounds, which may be too small by a factor."""
        evaluator, sizes = self.factors.evaluator(), self.factors.blocks.sizes
        if self.size is None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(observations, "_best_way", lambda *_: observations._Way(2, screened=False, growth=1.0))
                patch.setattr(observations, "SHARE", share)
                variates = ObservationVariates.at(self.predictors, self.anchor, self.cholesky)
            decider = make_decider(evaluator, sizes, rule, **variates.parts(self.factors))
        else:
            known = self.predictors.bounds(self.anchor, self.cholesky, self.factors.blocks, 2)
            known = replace(known, constants=shrunk * known.constants, proved=proved)
            decider = Decider(
                evaluator,
                sizes,
                loop_table(rule, len(sizes)),
                surrogate=build(self.factors, self.anchor, order=2).surrogate,
                bounds=known.compiled(share),
                kappa=rule.joint,
            )
        decider.reset(theta)
        return decider

    def log_ratio(self, theta: Array, proposed: Array) -> Array:
        """With expansions in place of log likelihoods."""
        exact = self.log_density(proposed) - self.log_density(theta)
        return np.asarray(exact - self.remainders(theta, proposed).sum(-1))


Rates = Callable[[float, Array, Array], Array]


def right(kappa: float, b: Array, r: Array) -> Array:
    """Means of the Poisson variables."""
    return np.asarray(kappa * b - r / 2)


def wrong(kappa: float, b: Array, r: Array) -> Array:
    """What they are where candidates are kept with probability lambda / Lambda."""
    return kappa * b


def factor(kappa: float, b: Array, r: Array) -> Array:
    """What a hit adds to the log acceptance ratio."""
    return np.asarray(np.log((kappa * b + r / 2) / (kappa * b - r / 2)))


def acceptance(model: Model, theta: Array, proposed: Array, kappa: float, rates: Rates = right) -> float:
    """By enumeration of how often each of a few factors is hit."""
    r, b = model.remainders(theta, proposed), model.bounds(theta, proposed)
    hits = np.indices((MOST,) * len(r)).reshape(len(r), -1).T
    chances = scipy.stats.poisson.pmf(hits, rates(kappa, b, r)).prod(1)
    assert chances.sum() == pytest.approx(1, abs=1e-6)
    log_ratios = model.log_ratio(theta, proposed) + hits @ factor(kappa, b, r)
    return float(chances @ np.exp(np.minimum(0, log_ratios)))


def frequency(decider: Decider, theta: Array, proposed: Array, n: int) -> float:
    """Of acceptances among so many decisions about one move."""
    rng, accepted = np.random.default_rng(5), 0
    for log_u in np.log1p(-rng.random(n)):
        if decider.decide(proposed, float(log_u), 0.0, rng.bit_generator.capsule).accepted:
            accepted += 1
            decider.reset(theta)
    return accepted / n


FEW = {"observations": Model.few(3), "blocks": Model.few(6, size=2)}
MOVES = [((1.8, -0.8), (-1.4, 1.2)), ((-1.4, 1.2), (1.8, -0.8)), ((-2.0, -1.0), (0.8, 0.2)), ((0.8, 0.2), (-2.0, -1.0))]


@pytest.mark.parametrize("kappa", FEW_KAPPAS)
@pytest.mark.parametrize("factors", FEW)
def test_acceptance_probability(factors: str, kappa: float) -> None:
    """As enumerated; with the wrong share of candidates kept it would be another."""
    # At the largest kappa, what is wrong differs least.
    model, n, furthest = FEW[factors], 20_000 if kappa > 1 else 10_000, 0.0
    for start, end in MOVES[1::2]:
        theta, proposed = model.at(np.array(start)), model.at(np.array(end))
        expected, other = (acceptance(model, theta, proposed, kappa, rates) for rates in (right, wrong))
        found = frequency(model.decider(Poisson(kappa=kappa), theta), theta, proposed, n)
        error = np.sqrt(expected * (1 - expected) / n)
        assert abs(found - expected) < MAX_Z * error
        furthest = max(furthest, abs(found - other) / error)
    assert furthest > WRONG_Z


@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.parametrize("factors", FEW)
def test_detailed_balance(factors: str, kappa: float) -> None:
    """The ratio of the two acceptance probabilities is that of the posterior densities; otherwise it is not."""
    model = FEW[factors]
    for start, end in MOVES[::2]:
        theta, proposed = model.at(np.array(start)), model.at(np.array(end))
        exact = float(model.log_density(proposed) - model.log_density(theta))

        def off(rates: Rates, theta: Array = theta, proposed: Array = proposed, exact: float = exact) -> float:
            forth, back = (
                acceptance(model, theta, proposed, kappa, rates),
                acceptance(model, proposed, theta, kappa, rates),
            )
            return abs(np.log(forth / back) - exact)

        assert off(right) < 1e-4 < 0.003 < off(wrong)


def test_one_factor_is_hit_several_times() -> None:
    model = FEW["observations"]
    theta, proposed = (model.at(np.array(w)) for w in MOVES[2])
    means = right(4.0, model.bounds(theta, proposed), model.remainders(theta, proposed))
    assert means.max() > 3


# Few events among observations that are alike, so that remainders add up.
ONE = Model.make(1 + 0.3 * np.random.default_rng(8).standard_normal((40, 1)), (np.arange(40) < 4).astype(float))
GRID = ONE.at(np.linspace(-8, 8, 4001)[:, np.newaxis])


def truth() -> tuple[Array, float, float]:
    """Of one parameter by quadrature: the probability of each place of the grid, the mean and the sd."""
    log_density = ONE.log_density(GRID)
    mass = np.exp(log_density - log_density.max())
    mass /= mass.sum()
    mean = float(mass @ GRID[:, 0])
    return mass, mean, float(np.sqrt(mass @ (GRID[:, 0] - mean) ** 2))


@pytest.mark.parametrize(
    "size", [pytest.param(None, id="observations"), pytest.param(4, id="blocks", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("kappa", FEW_KAPPAS)
def test_chains_are_at_the_posterior(kappa: float, size: int | None) -> None:
    model, n, rng = replace(ONE, size=size), 50_000, np.random.default_rng(6)
    kernel = MetropolisHastings(model.decider(Poisson(kappa=kappa), model.anchor))
    records = Records.allocate(n, 1, kernel.stats)
    move = laplace_pcn(model.anchor, 1.3 * model.cholesky, 0.0)
    kernel.batch(rng, kernel.current_state, move, records, n, BatchControl.none())
    _, mean, sd = truth()
    draws = records.theta[:, 0]
    for values, expected in ((draws, mean), ((draws - mean) ** 2, sd**2)):
        error = values.std() / np.sqrt(float(az.ess(values[np.newaxis])))
        assert abs(values.mean() - expected) < MAX_Z * error < 0.1 * sd
    assert records["n_obs_used"].mean() < 0.9 * n


@pytest.mark.slow
@pytest.mark.parametrize("kappa", KAPPAS[:2])
def test_steps_leave_the_posterior_as_it_is(kappa: float) -> None:
    """Chains that start at the posterior are there after some steps; with the wrong rates they are not."""
    mass, mean, sd = truth()

    def z(rates: Rates, n: int = 10_000) -> float:
        rng = np.random.default_rng(1)
        theta = GRID[rng.choice(len(GRID), n, p=mass)]
        for _ in range(10):
            proposed = theta + 2.0 * sd * rng.standard_normal(theta.shape)
            r, b = ONE.remainders(theta, proposed), ONE.bounds(theta, proposed)
            with np.errstate(divide="ignore", invalid="ignore"):
                log_ratio = ONE.log_ratio(theta, proposed) + _sum(rng.poisson(rates(kappa, b, r)), factor(kappa, b, r))
            accepted = np.log(rng.random(n)) < log_ratio
            theta = np.where(accepted[:, np.newaxis], proposed, theta)
        return max(abs(theta.mean() - mean) / (sd / np.sqrt(n)), abs(theta.std() / sd - 1) * np.sqrt(2 * n))

    assert z(right) < MAX_Z
    assert z(wrong) > WRONG_Z


def _sum(hits: NDArray[np.int64], factors: Array) -> Array:
    return np.where(hits > 0, hits * factors, 0.0).sum(-1)


@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.parametrize("factors", FEW)
def test_where_candidates_are_too_many_all_decide(factors: str, kappa: float) -> None:
    model, n = FEW[factors], 5_000
    theta, proposed = (model.at(np.array(w)) for w in MOVES[1])
    decider = model.decider(Poisson(kappa=kappa), theta, share=0.0)
    expected = float(np.exp(model.log_density(proposed) - model.log_density(theta)))
    found = frequency(decider, theta, proposed, n)
    assert found == pytest.approx(expected, abs=MAX_Z * np.sqrt(expected * (1 - expected) / n))
    assert decider.n_obs_used == n * len(model.y)
    assert decider.n_candidates == 0


def test_what_cannot_change_the_decision_is_not_looked_at() -> None:
    model, rng = FEW["observations"], np.random.default_rng(3)
    theta, proposed = (model.at(np.array(w)) for w in MOVES[2])
    means = 4.5 * model.bounds(theta, proposed).sum()
    for log_u in (-1e3, 1e3):
        assert not _decide(model, 4.0, theta, proposed, log_u, rng).n_obs_used
    open_ones = [_decide(model, 4.0, theta, proposed, float(model.log_ratio(theta, proposed)), rng) for _ in range(50)]
    assert 0.5 * means < np.mean([one.n_obs_used for one in open_ones])


def _decide(
    model: Model, kappa: float, theta: Array, proposed: Array, log_u: float, rng: np.random.Generator
) -> Decision:
    return model.decider(Poisson(kappa=kappa), theta).decide(proposed, log_u, 0.0, rng.bit_generator.capsule)


@pytest.mark.parametrize("kappa", KAPPAS)
def test_remainders_of_rounding_only(kappa: float) -> None:
    """Near the anchor they are far beyond their bounds, and all but never picked."""
    rng = np.random.default_rng(4)
    theta, proposed = ONE.at(np.array([1e-6])), ONE.at(np.array([-1e-6]))
    assert (np.abs(ONE.remainders(theta, proposed)) > 10 * ONE.bounds(theta, proposed)).any()
    exact = float(ONE.log_density(proposed) - ONE.log_density(theta))
    for log_u in (exact - 1e-9, exact + 1e-9):
        assert _decide(ONE, kappa, theta, proposed, log_u, rng).accepted == (log_u < exact)


@pytest.mark.parametrize("kappa", FEW_KAPPAS)
def test_learned_bounds_that_do_not_hold_are_taken_for_the_remainders(kappa: float) -> None:
    """Acceptance probabilities are those of clipped remainders, and audits tell what that does to Metropolis'."""
    model, shrunk, n, rng = FEW["blocks"], 0.02, 20_000, np.random.default_rng(2)
    theta, proposed = (model.at(np.array(w)) for w in MOVES[3])
    r, b = model.remainders(theta, proposed), shrunk * model.bounds(theta, proposed)
    assert (np.abs(r) > b).any()
    clipped = np.clip(r, -0.999999 * b, 0.999999 * b)
    surrogate = float(model.log_ratio(theta, proposed))
    hits = np.indices((MOST,) * len(r)).reshape(len(r), -1).T
    chances = scipy.stats.poisson.pmf(hits, right(kappa, b, clipped)).prod(1)
    expected = float(chances @ np.exp(np.minimum(0, surrogate + hits @ factor(kappa, b, clipped))))
    decider, accepted = model.decider(Poisson(kappa=kappa), theta, shrunk=shrunk, proved=False), 0
    for _ in range(n):
        decision = decider.decide(proposed, np.log1p(-rng.random()), 0.0, rng.bit_generator.capsule, audit=True)
        accepted += decision.accepted
        if decision.accepted:
            decider.reset(theta)
    assert abs(accepted / n - expected) < MAX_Z * np.sqrt(expected * (1 - expected) / n)
    off = abs(np.exp(min(0.0, surrogate + clipped.sum())) - np.exp(min(0.0, surrogate + r.sum())))
    assert decider.acceptance_error / decider.n_audited_acceptances == pytest.approx(off, rel=1e-3)
    assert decider.n_audited_acceptances == n
    assert decider.n_bound_violated > 0


def test_a_bound_that_does_not_hold_is_an_error() -> None:
    model, rng = FEW["blocks"], np.random.default_rng(2)
    theta, proposed = (model.at(np.array(w)) for w in MOVES[3])
    decider, log_u = model.decider(Poisson(kappa=4), theta, shrunk=0.02), float(model.log_ratio(theta, proposed)) + 0.01

    def some_decisions() -> None:
        for _ in range(3000):
            decider.decide(proposed, log_u, 0.0, rng.bit_generator.capsule)

    with pytest.raises(RuntimeError, match=r"the remainder of block \d is .*, and was proved to be at most"):
        some_decisions()


def test_a_saved_state_goes_on_with_the_same_decisions() -> None:
    model = replace(ONE)

    def decisions(decider: Decider, n: int, rng: np.random.Generator) -> list[float]:
        points = [model.at(rng.standard_normal(1)) for _ in range(n)]
        log_us = np.log(rng.random(n))
        return [
            decider.decide(point, float(log_u), 0.0, rng.bit_generator.capsule).log_ratio
            for point, log_u in zip(points, log_us, strict=True)
        ]

    first, second = (model.decider(Poisson(kappa=2), model.anchor) for _ in range(2))
    rng = np.random.default_rng(9)
    decisions(first, 100, rng)
    second.state = first.state
    other = np.random.default_rng()
    other.bit_generator.state = rng.bit_generator.state
    assert decisions(first, 100, rng) == decisions(second, 100, other)


@pytest.mark.parametrize("kappa", [0.49, -1.0, np.nan, np.inf])
def test_other_kappas_are_refused(kappa: float) -> None:
    with pytest.raises(InputError, match=r"`kappa` must be finite and at least 0\.5"):
        Poisson(kappa=kappa)
    with pytest.raises(ValueError, match="kappa must be finite"):
        Decider(ONE.factors.evaluator(), ONE.factors.blocks.sizes, loop_table(Poisson(), 40), kappa=kappa)


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(InputError, match="factorised test does not use `kappa`"):
        make_test("factorised", kappa=1.0)
    with pytest.raises(InputError, match="poisson test does not use `epsilon`"):
        make_test("poisson", epsilon=0.1)
    with pytest.raises(InputError, match="the poisson test needs control variates with bounds"):
        make_decider(ONE.factors.evaluator(), ONE.factors.blocks.sizes, Poisson())
    with pytest.raises(ValueError, match="joint decisions need bounds"):
        Decider(ONE.factors.evaluator(), ONE.factors.blocks.sizes, loop_table(Factorised(), 40), kappa=1.0)
