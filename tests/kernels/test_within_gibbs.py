"""Metropolis within Gibbs on hierarchical posteriors without Stan: detailed balance, invariance and setup."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy import stats
from scipy.special import expit
from slicing import sampler

from stansub import _loop
from stansub.errors import RunError
from stansub.kernels import within_gibbs
from stansub.kernels.within_gibbs import GradientMove, WithinGibbs
from stansub.progress import Progress
from stansub.target.affine import AffinePosterior
from stansub.target.coordinates import Coordinates
from stansub.target.families import Binomial
from stansub.target.invariants import Invariants
from stansub.target.levels import Grouping, LevelPasses
from stansub.target.programs import Code, ProgramFamily
from stansub.target.remainders import NoPredictorsError
from stansub.target.sparse import SparsePredictors, SparseRows
from stansub.target.symmetries import Equivalence, Symmetry
from stansub.tuning.within_gibbs import TunedWithinGibbs, begun, tune

Array = NDArray[np.float64]
Rng = np.random.Generator
MAX_Z = 4.5
N, J, K = 60, 4, 6
DIM = 1 + J + 2 * K + 2
_ROWS = np.random.default_rng(3)
G, H, X = _ROWS.integers(J, size=N), _ROWS.integers(K, size=N), _ROWS.standard_normal(N)


@lru_cache
def rows() -> SparseRows:
    """An intercept, one grouping with an intercept each, and one with an intercept and a slope each."""
    places = np.stack([1 + G, 1 + J + H, 1 + J + K + H], axis=1).ravel()
    factors = np.stack([np.ones(N), np.ones(N), X], axis=1).ravel()
    gathered = sp.csr_array((factors, places, 3 * np.arange(N + 1)), shape=(N, DIM - 2))
    return SparseRows.of(np.ones((1, 1)), np.array([0]), gathered, np.zeros(1))


@dataclass(frozen=True)
class Hierarchy:
    """alpha, u ~ N(0, tau), v ~ N(0, omega) with two columns, log tau and log omega; perhaps u = tau z."""

    centred: bool = True
    degrees: float = np.inf  # of the effects' distribution

    dim = DIM

    def scales(self, theta: Array) -> Array:
        found = np.ones(DIM - 2)
        if self.centred:
            found[1 : 1 + J] = np.exp(theta[-2])
        found[1 + J :] = np.exp(theta[-1])
        return found

    def log_density(self, theta: Array) -> float:
        x = theta[:-2] / self.scales(theta)
        value = -0.5 * float(x @ x)
        if np.isfinite(self.degrees):
            value = float(-0.5 * (self.degrees + 1) * np.log1p(x**2 / self.degrees).sum())
        of_scales = J * self.centred * theta[-2] + 2 * K * theta[-1]
        return float(value - of_scales - 0.5 * theta[-2:] @ theta[-2:])

    def log_density_gradient(self, theta: Array) -> tuple[float, Array]:
        scales = self.scales(theta)
        x = theta[:-2] / scales
        slope = -x / scales
        if np.isfinite(self.degrees):
            slope = -(self.degrees + 1) / (self.degrees + x**2) * x / scales
        by_scale = np.array([slope[1 : 1 + J] @ theta[1 : 1 + J], slope[1 + J :] @ theta[1 + J : -2]])
        on_logs = -by_scale - [J, 2 * K]
        if not self.centred:
            on_logs[0] = 0
        return self.log_density(theta), np.concatenate([slope, on_logs - theta[-2:]])

    def phi(self, theta: Array) -> Array:
        found = theta[:-2].copy()
        if not self.centred:
            found[1 : 1 + J] *= np.exp(theta[-2])
        return found

    def draw(self, rng: Rng) -> Array:
        theta = rng.standard_normal(DIM)
        theta[1 + J : -2] *= np.exp(theta[-1])
        if self.centred:
            theta[1 : 1 + J] *= np.exp(theta[-2])
        return theta

    def answers(self, rng: Rng, theta: Array) -> SparsePredictors:
        row = rows()
        y = rng.random(N) < expit(row(self.phi(theta)))
        return SparsePredictors((row,), Binomial(y.astype(float), np.ones(N)))


@dataclass(frozen=True)
class ItemResponse:
    """Logits e^a (t - b) with a ~ N(0, 0.5), b ~ N(0, 1), t ~ N(0, tau), log tau ~ N(0, 0.5)."""

    dim = 2 * J + K + 1

    def log_density(self, theta: Array) -> float:
        return self.log_density_gradient(theta)[0]

    def log_density_gradient(self, theta: Array) -> tuple[float, Array]:
        scales = np.repeat([0.5, 1, np.exp(theta[-1]), 0.5], [J, J, K, 1])
        x = theta / scales
        slope = -x / scales
        slope[-1] += x[2 * J : -1] @ x[2 * J : -1] - K
        return float(-0.5 * x @ x - K * theta[-1]), slope

    def phi(self, theta: Array) -> Array:
        return theta[:-1].copy()

    def draw(self, rng: Rng) -> Array:
        theta = rng.standard_normal(self.dim) * np.repeat([0.5, 1, 1, 0.5], [J, J, K, 1])
        theta[2 * J : -1] *= np.exp(theta[-1])
        return theta

    def answers(self, rng: Rng, theta: Array) -> SparsePredictors:
        starts, ones = np.arange(N + 1), np.ones(N)
        log_a = sp.csr_array((ones, G, starts), shape=(N, self.dim - 1))
        places, factors = np.stack([2 * J + H, J + G], axis=1).ravel(), np.tile([1.0, -1.0], N)
        other = sp.csr_array((factors, places, 2 * starts), shape=(N, self.dim - 1))
        none = np.ones((1, 0)), np.empty(0, np.int64)
        read = tuple(SparseRows.of(*none, one, np.zeros(1)) for one in (log_a, other))
        y = rng.random(N) < expit(np.exp(read[0](self.phi(theta))) * read[1](self.phi(theta)))
        lines = [("data", 1, 0), ("argument", 0, 0), ("exp", 1, 0), ("argument", 1, 0), ("product", 2, 3)]
        lines += [("product", 0, 4), ("log1p_exp", 4, 0), ("difference", 5, 6)]
        codes = np.array([(_loop.OPERATIONS.index(name), a, b) for name, a, b in lines], np.int32)
        code = Code(np.array([0, len(lines)], np.int32), codes, np.zeros(len(lines)))
        return SparsePredictors(read, ProgramFamily(code, 2, np.stack([np.zeros(N), y])))


@dataclass(frozen=True)
class FreeSigns(ItemResponse):
    """The same with logits a (t - b), or a (t - b) + a, in which the sign of a matters."""

    has_own: bool = False

    def answers(self, rng: Rng, theta: Array) -> SparsePredictors:
        found = super().answers(rng, theta)
        assert isinstance(found.family, ProgramFamily)
        code = found.family.code
        lines = [("data", 1, 0), ("argument", 0, 0), ("argument", 1, 0), ("product", 1, 2)]
        if self.has_own:
            lines += [("sum", 1, 3)]
        at = len(lines) - 1
        lines += [("product", 0, at), ("log1p_exp", at, 0), ("difference", at + 1, at + 2)]
        codes = np.array([(_loop.OPERATIONS.index(name), a, b) for name, a, b in lines], np.int32)
        code = Code(np.array([0, len(lines)], np.int32), codes, np.zeros(len(lines)))
        return replace(found, family=ProgramFamily(code, 2, found.family.data))


Density = Hierarchy | ItemResponse


@dataclass(frozen=True)
class ToySplit:
    density: Density
    predictors: SparsePredictors

    def prior(self) -> Any:
        return Prior(self.density, self.density.phi)


@dataclass(frozen=True)
class Prior:
    model: Density
    phi: Any

    def slices(self, coordinates: Coordinates, moves: Sequence[Symmetry]) -> _loop.Slices:
        return sampler(self.model.log_density, coordinates, moves)


def split(density: Density, rng: Rng, theta: Array | None = None) -> ToySplit:
    """A posterior of answers drawn at some parameters."""
    return ToySplit(density, density.answers(rng, density.draw(rng) if theta is None else theta))


@lru_cache
def tuned(density: Density) -> TunedWithinGibbs:
    rng = np.random.default_rng(4)
    return tune(split(density, rng), density.dim, rng, Progress())  # type: ignore[arg-type]


def test_setup() -> None:
    found = tuned(Hierarchy())
    assert sorted(found.n_levels) == [1, J, K]
    assert [one.shape[1] for one in found.transition.curvatures] == [1, 2, 1]
    # Two scales, and a shift of each grouping against the intercept.
    assert len(found.transition.slices) == 4
    assert min(found.accepted) > 0.5
    assert found.transition.order[0] == np.argmin(found.accepted)


def test_chains_start_at_both_modes_if_signs_can_change_together() -> None:
    density = FreeSigns()
    found = tuned(density)
    posterior = split(density, np.random.default_rng(4))

    def log_density(theta: Array) -> float:
        return density.log_density(theta) + posterior.predictors.log_lik(density.phi(theta))

    starts = found.starts(4)
    for k, start in enumerate(starts):
        signs = np.where(np.arange(density.dim) < density.dim - 1, -1.0, 1.0)
        assert any(np.array_equal(start, one) for one in (found.mirrored if k % 2 else found.draws))
        assert log_density(signs * start) == pytest.approx(log_density(start), rel=1e-12)
    np.testing.assert_array_equal(np.abs(found.mirrored), np.abs(found.draws))
    assert (found.mirrored[:, :-1] == -found.draws[:, :-1]).all()


@pytest.mark.parametrize("density", [FreeSigns(has_own=True), ItemResponse(), Hierarchy()])
def test_no_signs_can_change_together(density: Density) -> None:
    assert not len(tuned(density).mirrored)


def test_chains_from_far_inits_begin_near_the_posterior() -> None:
    """From the inits themselves they would stay far below the draws of the set-up for long."""
    density, rng = Hierarchy(), np.random.default_rng(4)
    own, found = split(density, rng), tuned(density)
    given = [rng.uniform(-6, 6, density.dim) for _ in range(3)]
    starts, moved = begun(own, found.transition, given, rng, Progress())  # type: ignore[arg-type]
    assert moved == (0, 1, 2)

    def log_density(theta: Array) -> float:
        return density.log_density(theta) + own.predictors.log_lik(density.phi(theta))

    level = min(map(log_density, found.draws))
    assert max(map(log_density, given)) < level - 50
    assert min(map(log_density, starts)) > level - density.dim


def test_effects_that_a_scale_multiplies_are_arguments() -> None:
    found = tuned(Hierarchy(centred=False))
    assert len(found.transition.coordinates.sizes) == J
    assert sorted(found.n_levels) == [1, J, K]


def test_effects_must_be_normal_given_the_rest() -> None:
    with pytest.raises(NoPredictorsError, match="not normal"):
        tuned(Hierarchy(degrees=4))


class Bounded(Hierarchy):
    """Undefined above an intercept of 0.5."""

    def log_density(self, theta: Array) -> float:
        if theta[0] > 0.5:
            raise RunError("undefined")
        return super().log_density(theta)


def test_a_move_to_where_the_prior_is_undefined_is_rejected() -> None:
    setup, rng = tuned(Hierarchy()).transition, np.random.default_rng(2)
    kernel = WithinGibbs(AffinePosterior.of(split(Bounded(), rng), setup.coordinates), setup)  # type: ignore[arg-type]
    state, places = kernel.init(np.zeros(DIM)), []
    for _ in range(50):
        state, _ = kernel.step(rng, state, None)
        places.append(state.position[0])
    assert 0 < max(places) <= 0.5


def scores(density: Density, n: int) -> Array:
    """z-scores of changes of moments by steps from draws of prior and data, which leave the joint distribution so."""
    setup, rng, changes = tuned(density).transition, np.random.default_rng(11), []
    posterior = AffinePosterior.of(split(density, rng), setup.coordinates)  # type: ignore[arg-type]
    kernel = WithinGibbs(posterior, setup)
    for _ in range(n):
        theta = density.draw(rng)
        family = split(density, rng, theta).predictors.family
        kernel._passes = LevelPasses(replace(posterior.predictors, family=family), kernel._groupings)
        kernel._position, state = np.empty(0), kernel.init(theta)
        for _ in range(2):
            state, _ = kernel.step(rng, state, None)
        ends = [np.concatenate([at, at**2, at[1:] * at[0], np.abs(at)]) for at in (theta, state.position)]
        changes.append(np.tanh(ends[1]) - np.tanh(ends[0]))
    return np.asarray(np.mean(changes, axis=0) / (np.std(changes, axis=0) / np.sqrt(n) + 1e-300))


def evaluated_again(kernel: WithinGibbs, n: int) -> float:
    """Largest difference between the evaluations that a kernel keeps and those at its state, after some steps."""
    rng, state = np.random.default_rng(5), kernel.init(np.zeros(DIM))
    for _ in range(n):
        state, _ = kernel.step(rng, state, None)
    kept = kernel._passes.state().copy()
    kernel._passes.place(kernel._coordinates.inward(state.position))
    return float(np.abs(kernel._passes.state() - kept).max())


def test_steps_keep_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shifts between groupings change no predictor; without a record of them, evaluations are elsewhere."""
    setup, rng = tuned(Hierarchy()).transition, np.random.default_rng(2)
    posterior = AffinePosterior.of(split(Hierarchy(), rng), setup.coordinates)  # type: ignore[arg-type]
    kernel = WithinGibbs(posterior, setup)
    assert evaluated_again(kernel, 50) < 1e-10
    assert kernel.n_evaluated == N * (1 + 50 * 5)  # forth and back over three groupings
    monkeypatch.setattr(Equivalence, "copy", lambda self: Equivalence.none(DIM))
    assert evaluated_again(WithinGibbs(posterior, setup), 50) > 1e-3


def test_a_restored_kernel_makes_the_same_steps() -> None:
    setup, rng = tuned(Hierarchy()).transition, np.random.default_rng(2)
    posterior = AffinePosterior.of(split(Hierarchy(), rng), setup.coordinates)  # type: ignore[arg-type]
    kernel, other = WithinGibbs(posterior, setup), WithinGibbs(posterior, setup)
    state = kernel.init(np.zeros(DIM))
    for _ in range(20):
        state, _ = kernel.step(rng, state, None)
    other.restore(state, kernel.save())
    draws: list[list[Array]] = [[], []]
    for each, positions in zip((kernel, other), draws, strict=True):
        rng, at = np.random.default_rng(6), state
        for _ in range(20):
            at, _ = each.step(rng, at, None)
            positions.append(at.position)
    np.testing.assert_array_equal(*draws)
    assert kernel.n_evaluated == other.n_evaluated


@pytest.mark.parametrize("centred", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_step_leaves_the_joint_distribution_of_parameters_and_data(centred: bool) -> None:
    assert np.abs(scores(Hierarchy(centred), 700)).max() < MAX_Z


def test_a_wrong_acceptance_changes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if moves were symmetric."""
    monkeypatch.setattr(GradientMove, "log_ratio", lambda self, change, *others: change)
    assert np.abs(scores(Hierarchy(), 700)).max() > MAX_Z


def test_items_move_in_coordinates_that_a_scale_leaves_unchanged() -> None:
    assert [one.scaled.tolist() for one in invariants(ItemResponse())] == [[1], []]


@pytest.mark.slow
def test_a_step_of_products_leaves_the_joint_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the Jacobian of the items' coordinates, the distribution changes."""
    assert np.abs(scores(ItemResponse(), 1000)).max() < MAX_Z
    monkeypatch.setattr(Invariants, "log_jacobian", lambda self, x: np.zeros(len(x)))
    assert np.abs(scores(ItemResponse(), 1000)).max() > MAX_Z


def invariants(density: Density) -> list[Invariants]:
    """Coordinates of the levels of each grouping."""
    setup = tuned(density).transition
    posterior = AffinePosterior.of(split(density, np.random.default_rng(4)), setup.coordinates)  # type: ignore[arg-type]
    return WithinGibbs(posterior, setup)._invariants


class Levels:
    """Three levels of two coefficients, not normal."""

    hessian = np.array([[2.0, 0.6], [0.6, 1.5]])

    def __init__(self) -> None:
        self.shift = np.random.default_rng(2).standard_normal((3, 2))

    def value(self, x: Array) -> Array:
        return np.asarray(-np.logaddexp(x[:, 0] * np.exp(0.5 * x[:, 1]), 0) - 0.3 * ((x - self.shift) ** 2).sum(axis=1))

    def gradient(self, x: Array) -> Array:
        steps = 1e-5 * np.eye(2)
        return np.stack([(self.value(x + step) - self.value(x - step)) / 2e-5 for step in steps], axis=1)

    def metric(self, x: Array | None = None) -> Array:
        given = np.zeros((3, 2)) if x is None else x
        return np.linalg.inv(self.hessian * np.exp(0.3 * given.sum(axis=1))[:, np.newaxis, np.newaxis])

    def flows(self, x: Array, there: Array, how: str, once: bool) -> Array:
        """Logarithms of density, proposal and acceptance from one place to another, for each level."""
        made = GradientMove.of(self.metric(x if how == "metric of the state" else None), once=once)
        slopes, new_slopes = self.gradient(x), self.gradient(there)
        drift = made.steps(slopes, np.zeros_like(x))
        proposed = [
            stats.multivariate_normal(at, made.spread * metric).logpdf(to)
            for at, metric, to in zip(x + drift, made.metric, there, strict=True)
        ]
        change = self.value(there) - self.value(x)
        ratio = made.log_ratio(change, there - x, slopes, slopes if how == "gradient at one end" else new_slopes)
        if how == "sum over levels":
            ratio = np.full_like(ratio, ratio.sum())
        return np.asarray(self.value(x) + proposed + np.minimum(0, ratio))


def imbalance(how: str, once: bool) -> float:
    levels, rng = Levels(), np.random.default_rng(8)
    pairs = rng.standard_normal((200, 2, 3, 2))
    differences = (levels.flows(x, there, how, once) - levels.flows(there, x, how, once) for x, there in pairs)
    return float(max(np.abs(one).max() for one in differences))


ONCE = pytest.mark.parametrize("once", [False, True])


@ONCE
def test_detailed_balance_of_each_level(once: bool) -> None:
    assert imbalance("", once) < 1e-9


@ONCE
@pytest.mark.parametrize("how", ["gradient at one end", "sum over levels", "metric of the state"])
def test_shortcuts_break_it(how: str, once: bool) -> None:
    assert imbalance(how, once) > 0.1


def test_steps_have_the_covariance_of_the_proposal() -> None:
    made = GradientMove.of(Levels().metric(), once=False)
    columns = np.stack([made.steps(np.zeros((3, 2)), np.tile(unit, (3, 1))) for unit in np.eye(2)], axis=-1)
    np.testing.assert_allclose(columns @ columns.transpose(0, 2, 1), made.spread * made.metric, rtol=1e-12)


def test_a_change_that_is_not_the_sum_over_levels_is_an_error() -> None:
    slopes = np.ones((3, 1))
    np.testing.assert_allclose(within_gibbs._changes(slopes, slopes, slopes, 3.0), 1)
    with pytest.raises(RunError, match="not normal and independent"):
        within_gibbs._changes(slopes, slopes, slopes, 3.001)


def test_levels_visited_once_overshoot_the_mean() -> None:
    """Normal levels with the precision of the metric: the mean of x' is as far on the other side as 0.3 of the way."""
    metric = Levels().metric()
    x = np.random.default_rng(4).standard_normal((3, 2))
    slopes = -np.linalg.solve(metric, x[:, :, np.newaxis])[:, :, 0]
    made = GradientMove.of(metric, once=True)
    np.testing.assert_allclose(x + made.steps(slopes, np.zeros((3, 2))), -0.3 * x)
    # With the variance that the normal distribution then keeps, all moves would be accepted.
    steps = made.steps(slopes, np.ones((3, 2)))
    there = x + steps
    new_slopes = -np.linalg.solve(metric, there[:, :, np.newaxis])[:, :, 0]
    change = 0.5 * ((x * -slopes) - (there * -new_slopes)).sum(axis=1)
    np.testing.assert_allclose(replace(made, spread=0.91).log_ratio(change, steps, slopes, new_slopes), 0, atol=1e-12)


class Products:
    """Levels of e^x0 (t - x1) + x2, of which a factor of t and x1 against a shift of x0 leaves all unchanged."""

    def __init__(self) -> None:
        rng = np.random.default_rng(6)
        self.places = np.arange(9).reshape(3, 3)
        self.move = Symmetry(np.tile([-1.0, 0, 0], 3), np.array([1, 4, 7]))
        self.grouping = Grouping(self.places, np.zeros(5, np.int32))
        self.inner = Invariants.of(self.grouping, [self.move])
        self.t = rng.standard_normal((3, 20))
        self.x = rng.standard_normal((3, 3))

    def value(self, x: Array) -> Array:
        eta = np.exp(x[:, [0]]) * (self.t - x[:, [1]]) + x[:, [2]]
        return np.asarray((0.4 * eta - np.logaddexp(eta, 0)).sum(axis=1) - 0.5 * (x**2).sum(axis=1))


def derivative(function: Callable[[Array], Array], at: Array) -> Array:
    """Central differences along the elements of all levels at once, as the last axis."""
    steps = 1e-5 * np.eye(at.shape[1])
    return np.stack([(function(at + step) - function(at - step)) / 2e-5 for step in steps], axis=-1)


def test_coordinates_that_a_scale_leaves_unchanged() -> None:
    own = Products()
    inner, x = own.inner, own.x
    assert (inner.scaled.tolist(), inner.factor) == ([1], 0)
    z = inner.inward(x)
    np.testing.assert_allclose(inner.outward(z), x, rtol=1e-14)
    np.testing.assert_allclose(inner.inward(own.move(x.ravel(), 0.7).reshape(3, 3))[:, 1:], z[:, 1:], rtol=1e-14)
    np.testing.assert_allclose(inner.jacobian(x), derivative(inner.outward, z), atol=1e-8)
    np.testing.assert_allclose(inner.log_jacobian(x), np.linalg.slogdet(inner.jacobian(x))[1], atol=1e-14)
    slopes = inner.slopes(x, derivative(own.value, x))

    def value(at: Array) -> Array:
        return own.value(inner.outward(at)) + inner.log_jacobian(inner.outward(at))

    np.testing.assert_allclose(slopes, derivative(value, z), rtol=1e-6, atol=1e-6)
    precision = np.tile(np.diag([1.0, 2, 3]), (3, 1, 1))
    jacobian = inner.jacobian(x)
    np.testing.assert_allclose(inner.precision(x, precision), jacobian.transpose(0, 2, 1) @ precision @ jacobian)


def test_other_levels_have_their_own_coordinates() -> None:
    own = Products()
    abilities = Symmetry(np.zeros(9), own.places.ravel())
    some = Symmetry(own.move.direction, np.array([1, 4]))
    for moves in ([], [abilities], [some]):
        inner = Invariants.of(own.grouping, moves)
        assert not len(inner.scaled)
        np.testing.assert_array_equal(inner.inward(own.x), own.x)
        np.testing.assert_array_equal(inner.slopes(own.x, own.x), own.x)
    assert not len(Invariants.of(Grouping(own.places[:1], np.zeros(5, np.int32)), [own.move]).scaled)
