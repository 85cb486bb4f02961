"""The search for the first expansion point of a surrogate."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit

from stansub.errors import RunError
from stansub.progress import Progress
from stansub.stan.analysis import Analysis
from stansub.stan.sparse import sparse_predictors
from stansub.stan.syntax import parse
from stansub.stan.toolchain.stanc import canonical_code
from stansub.target import cholesky
from stansub.target.cholesky import Factor, Pattern, pattern_of
from stansub.target.conjugate_gradients import solve
from stansub.target.families import Poisson
from stansub.target.sparse import Quadratic, SparsePredictors, SparseRows
from stansub.tuning.surrogates import ridge as tuning

N, J = 3_000, 20
DISCOUNTING = """
data { int N; int J; array[N] int g; vector[N] later; vector[N] delay; vector[N] sooner; array[N] int y; }
parameters { vector<lower=0, upper=1>[J] k; vector<lower=0, upper=5>[J] b; }
model { for (n in 1 : N) y[n] ~ bernoulli_logit(b[g[n]] * (later[n] / (1 + k[g[n]] * delay[n]) - sooner[n])); }
"""


def test_the_mode_is_found_where_full_steps_overshoot() -> None:
    """From rates of 1 a full step leads to logarithms of rates of hundreds, where the likelihood is 0."""
    rng = np.random.default_rng(1)
    g = rng.integers(J, size=N)
    numbers = sp.csr_array((np.ones(N), g, np.arange(N + 1)), shape=(N, J))
    row = SparseRows.of(np.empty((1, 0)), np.empty(0, np.int64), numbers, np.zeros(1))
    counts = rng.poisson(np.exp(rng.normal(6.0, 1.0, J))[g]).astype(float)
    predictors = SparsePredictors((row,), Poisson(counts, np.ones(N)))
    found, n_passes = tuning.ridge_mode(predictors, Progress())
    means = np.bincount(g, counts) / np.bincount(g)
    np.testing.assert_allclose(found.point, np.log(means), atol=1e-2)
    assert n_passes < 60


def test_the_mode_is_found_where_many_groups_pass_saddles() -> None:
    """The search ended at a saddle, and the surrogate had no bound."""
    n, j, rng = 10_000, 100, np.random.default_rng(4)
    g, k, b = rng.integers(j, size=n), np.exp(rng.normal(-3, 0.8, j)), np.exp(rng.normal(-1.5, 0.3, j))
    later, delay = rng.uniform(20, 80, n), rng.choice([1.0, 7, 14, 30, 60, 90, 180], n)
    sooner = np.minimum(rng.uniform(5, 40, n), later)
    y = (rng.random(n) < expit(b[g] * (later / (1 + k[g] * delay) - sooner))).astype(int)
    data = {"N": n, "J": j, "g": g + 1, "later": later, "delay": delay, "sooner": sooner, "y": y}
    own = Analysis.of(parse(canonical_code(DISCOUNTING, "discounting"))).likelihood_split()
    found, n_passes = tuning.ridge_mode(sparse_predictors(own, data, n), Progress())
    assert np.abs(found.gradient - 0.1 * found.point).max() < 0.5
    assert np.linalg.eigvalsh(found.precision.toarray()).min() > 1
    assert n_passes < 120


def grouped(family: str, y: NDArray[Any], g: NDArray[np.int64], scale: str = "") -> SparsePredictors:
    """Return the likelihood of outcomes of groups."""
    kind = "vector[N]" if scale else "array[N] int"
    code = f"""
data {{ int N; int J; {kind} y; array[N] int g; }}
parameters {{ vector[J] mu; real<lower=0> sigma; }}
model {{ y ~ {family}(mu[g]{scale}); }}
"""
    own = Analysis.of(parse(canonical_code(code, "grouped"))).likelihood_split()
    return sparse_predictors(own, {"N": N, "J": J, "y": y, "g": g + 1}, N)


@pytest.mark.parametrize("size", [240.0, 5e4, -1e6])
def test_means_far_from_0_are_found_with_a_weaker_ridge(size: float) -> None:
    """The ridge drew the weights of rats to 0, where their sd is so large that the likelihood does not resist."""
    rng = np.random.default_rng(6)
    g = rng.integers(J, size=N)
    y = size * (1 + 0.1 * rng.standard_normal(J)[g] + 0.02 * rng.standard_normal(N))
    predictors = grouped("normal", y, g, ", sigma")
    end, _ = tuning.ridge_mode(predictors, Progress())
    assert np.abs(end.point[:J]).max() < 0.1 * abs(size)
    found = tuning.beyond(end, predictors, Progress())
    assert found is not None
    means = np.bincount(g, y) / np.bincount(g)
    np.testing.assert_allclose(found.point[:J], means, rtol=1e-3)


def test_the_ridge_stays_where_the_likelihood_has_no_maximum() -> None:
    """In half of the groups all outcomes are equal: the likelihood increases with their arguments without limit."""
    rng = np.random.default_rng(7)
    g = rng.integers(J, size=N)
    predictors = grouped("bernoulli_logit", (rng.random(N) < np.repeat([1.0, 0.3], J // 2)[g]).astype(int), g)
    end, _ = tuning.ridge_mode(predictors, Progress())
    assert tuning.beyond(end, predictors, Progress()) is None


def test_a_region_has_the_bounds_and_the_scales_of_arguments() -> None:
    """A number, a scale, a probability, and a place between 0 and 100; undefined for some parameters."""

    def phi(theta: np.ndarray) -> np.ndarray:
        if theta[3] > 0.9 * np.abs(theta).max():
            raise RunError("undefined")
        return np.array([theta[0], np.exp(theta[1]), expit(theta[2]), 100 * expit(theta[3])])

    prior: Any = SimpleNamespace(phi=phi)
    region = tuning.Region.of(prior, 4, 4, np.random.default_rng(1))
    np.testing.assert_allclose(region.lower, [-np.inf, 1e-3, 1e-3, 1e-3], atol=1e-5)
    np.testing.assert_allclose(region.upper, [np.inf, np.inf, 0.999, 99.999], atol=1e-5)
    assert (region.weights[[0, 2]] == 1).all()
    assert region.weights[3] < 0.01


RATERS = """
data { int N; int R; array[N, R] int y; }
parameters { simplex[2] share; array[R, 2] simplex[3] answers; }
model {
  for (n in 1 : N) {
    vector[2] terms = log(share);
    for (r in 1 : R) for (k in 1 : 2) terms[k] += log(answers[r, k, y[n, r]]);
    target += log_sum_exp(terms);
  }
}
"""


def raters() -> tuple[SparsePredictors, Any]:
    """Answers of four raters about observations of two kinds, and the map from logits to logarithms of simplexes."""
    rng, n, r = np.random.default_rng(5), 1_000, 4
    kind, shares = rng.random(n) < 0.3, rng.dirichlet([2, 1, 1], (r, 2))
    shares[:, 1] = shares[:, 1, ::-1]
    answers = [[rng.choice(3, p=shares[rater, int(one)]) + 1 for rater in range(r)] for one in kind]
    own = Analysis.of(parse(canonical_code(RATERS, "raters"))).likelihood_split("N")

    def phi(theta: np.ndarray) -> np.ndarray:
        parts = [*theta[:-2].reshape(-1, 3), theta[-2:]]
        return np.concatenate([one - np.logaddexp.reduce(one) for one in parts])

    return sparse_predictors(own, {"N": n, "R": r, "y": np.array(answers)}, n), SimpleNamespace(phi=phi)


def test_climbs_stay_where_simplexes_add_up_to_one() -> None:
    """Beside that surface the likelihood rises without end, and it bends up."""
    predictors, prior = raters()
    region = tuning.Region.of(prior, predictors.dim, predictors.dim, np.random.default_rng(1))
    found = [one.tolist() for one in region.simplexes.places]
    assert found == [*([k, k + 1, k + 2] for k in range(0, 24, 3)), [24, 25]]
    start = prior.phi(np.random.default_rng(2).standard_normal(predictors.dim))
    end, n_passes = tuning.ridge_mode(predictors, Progress(), start, region=region)
    for one in region.simplexes.places:
        assert np.exp(end.point[one]).sum() == pytest.approx(1, abs=1e-12)
    assert tuning.is_maximum(end, region)
    assert n_passes < 60
    # No point of the surface nearby is higher.
    height = region.with_ridge(end.value, end.point)
    for k in range(100):
        beside = prior.phi(end.point + 0.05 * np.random.default_rng(k).standard_normal(predictors.dim))
        assert region.with_ridge(predictors.log_lik(beside), beside) < height + 0.1
    free, _ = tuning.ridge_mode(predictors, Progress(), start)
    assert max(np.logaddexp.reduce(free.point[one]) for one in region.simplexes.places) > 1
    assert not tuning.is_maximum(end, tuning.Region.whole(predictors.dim))


def test_curvature_is_that_along_the_surface_of_simplexes() -> None:
    """Compared with second differences of the likelihood on the surface, at a point that is no maximum."""
    predictors, prior = raters()
    region = tuning.Region.of(prior, predictors.dim, predictors.dim, np.random.default_rng(1))
    point = prior.phi(np.random.default_rng(3).standard_normal(predictors.dim))
    here, h = predictors.expansion(point), 1e-3
    curvature = region.curvature(here)
    for k in range(10):
        direction = np.random.default_rng(k).standard_normal(predictors.dim)
        path = [prior.phi(point + s * h * direction) for s in (-1, 0, 1)]
        along = (path[2] - path[0]) / (2 * h)
        low, middle, high = map(predictors.log_lik, path)
        # A path on the surface bends along it, too, which adds the slope along that bend.
        bend = (path[2] - 2 * path[1] + path[0]) / h**2
        slope = np.zeros(predictors.dim)
        for one in region.simplexes.places:
            shares = np.exp(point[one])
            slope[one] = here.gradient[one] - here.gradient[one].sum() * shares
        second = (high - 2 * middle + low) / h**2
        normal = {one[0]: np.exp(point[one]) / np.linalg.norm(np.exp(point[one])) for one in region.simplexes.places}
        tangent = along.copy()
        for one in region.simplexes.places:
            tangent[one] -= normal[one[0]] * (normal[one[0]] @ along[one])
        assert -float(tangent @ (curvature @ tangent)) + float(slope @ bend) == pytest.approx(second, rel=1e-3, abs=0.1)


def test_sums_that_are_one_by_chance_are_no_simplexes() -> None:
    rng = np.random.default_rng(1)
    shares = np.log(rng.dirichlet(np.ones(3), 64))
    free = rng.standard_normal((64, 4))
    free[0, :2] = np.log([0.25, 0.75])
    found = list(tuning._simplexes(np.column_stack([free[:, :2], shares, free[:, 2:], shares[:, :2]])))
    assert [one.tolist() for one in found] == [[2, 3, 4]]


def test_probabilities_and_their_complements_are_found_anywhere() -> None:
    rng = np.random.default_rng(2)
    p, share = rng.random((64, 3)), np.log(rng.dirichlet(np.ones(2), 64))
    phis = np.column_stack([np.log(p), rng.standard_normal(64), np.log1p(-p[:, ::-1]), share])
    found = {tuple(sorted(one.tolist())) for one in tuning._simplexes(phis)}
    assert found == {(0, 6), (1, 5), (2, 4), (7, 8)}


def test_a_climb_stops_at_a_bound_and_goes_on_elsewhere() -> None:
    """Two arguments with maxima at 1 and 2, of observations of their own; the first may be 0.5 at most."""
    which = np.arange(N) % 2
    counts = np.random.default_rng(2).poisson(np.exp(1.0 + which)).astype(float)
    row = SparseRows(np.eye(2)[which], np.arange(2), (), np.zeros(1), N, 2)
    predictors = SparsePredictors((row,), Poisson(counts, np.ones(N)))
    region = tuning.Region(np.full(2, -np.inf), np.array([0.5, np.inf]), np.ones(2))
    found, _ = tuning.ridge_mode(predictors, Progress(), region=region)
    assert found.point[0] == 0.5
    free, _ = tuning.ridge_mode(predictors, Progress())
    np.testing.assert_allclose(free.point, [1.0, 2.0], atol=0.05)
    assert found.point[1] == pytest.approx(free.point[1], abs=0.01)


def test_other_arguments_move_as_is_best_given_those_at_bounds() -> None:
    """Of two slopes of nearly equal columns, the first is bounded. Steps with this alone cut short led down."""
    rng = np.random.default_rng(3)
    design = rng.standard_normal((N, 1)) + np.array([0.02, 0.05]) * rng.standard_normal((N, 2))
    counts = rng.poisson(np.exp(design @ [2.0, -1.5])).astype(float)
    predictors = SparsePredictors(
        (SparseRows(design, np.arange(2), (), np.zeros(1), N, 2),), Poisson(counts, np.ones(N))
    )
    region = tuning.Region(np.full(2, -np.inf), np.array([0.1, np.inf]), np.ones(2))
    found, n_passes = tuning.ridge_mode(predictors, Progress(), region=region)
    along = [np.array([0.1, second]) for second in np.linspace(0, 1, 1001)]
    assert found.point[0] == 0.1
    assert region.with_ridge(found.value, found.point) == pytest.approx(
        max(region.with_ridge(predictors.log_lik(one), one) for one in along), abs=0.1
    )
    assert n_passes < 15


def test_a_climb_orders_its_factors_once_for_fewer_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries vanish where observations saturate; a matrix with more entries has an order of its own."""
    orders: list[int] = []

    def counted(matrix: sp.csc_array) -> Pattern:
        orders.append(matrix.nnz)
        return pattern_of(matrix)

    monkeypatch.setattr(tuning, "pattern_of", counted)
    rng, newton = np.random.default_rng(1), tuning._Newton()
    for n, expected in ((10, [50]), (8, [50]), (12, [50, 54]), (10, [50, 54])):
        matrix = np.eye(30) * 20
        matrix[:n, n] = matrix[n, :n] = rng.standard_normal(n)
        right, own = rng.standard_normal(30), sp.csc_array(matrix)
        step, is_definite = newton.step(own, right)
        assert is_definite
        np.testing.assert_allclose(step, np.linalg.solve(matrix, right), rtol=1e-9)
        assert orders == expected


def crossed(n: int, first: int, second: int) -> SparsePredictors:
    """Return the likelihood of counts by the effects of two crossed groupings."""
    rng = np.random.default_rng(8)
    places = np.stack([rng.integers(first, size=n), first + rng.integers(second, size=n)], axis=1)
    numbers = sp.csr_array((np.ones(2 * n), places.ravel(), 2 * np.arange(n + 1)), shape=(n, first + second))
    row = SparseRows.of(np.empty((1, 0)), np.empty(0, np.int64), numbers, np.zeros(1))
    counts = rng.poisson(np.exp(rng.normal(1.0, 0.5, first + second)[places].sum(axis=1))).astype(float)
    return SparsePredictors((row,), Poisson(counts, np.ones(n)))


def counted_factors(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which the dimension of each factor is added, of which all are dear from now on."""
    made: list[int] = []

    def counted(precision: sp.csc_array, order: NDArray[np.int32]) -> Factor | None:
        made.append(precision.shape[0])
        return cholesky.definite_factor(precision, order)

    monkeypatch.setattr(tuning, "definite_factor", counted)
    monkeypatch.setattr(cholesky, "_DEAR", 0.0)
    return made


def test_climbs_with_dear_factors_need_none_and_end_at_the_same_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    predictors = crossed(8_000, 300, 200)
    expected, n_passes = tuning.ridge_mode(predictors, Progress())
    made = counted_factors(monkeypatch)
    found, n_own = tuning.ridge_mode(predictors, Progress())
    assert not made
    np.testing.assert_allclose(found.point, expected.point, atol=1e-6)
    assert n_own == n_passes


def test_a_step_whose_products_do_not_converge_comes_from_a_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products are not tried again in the same climb."""
    made, newton = counted_factors(monkeypatch), tuning._Newton()
    rng = np.random.default_rng(1)
    vectors = np.linalg.qr(rng.standard_normal((120, 120)))[0]
    matrix, right = (vectors * 10.0 ** rng.uniform(-6, 0, 120)) @ vectors.T, rng.standard_normal(120)
    tried: list[int] = []

    def counted_products(*args: Any, most: int) -> Any:
        tried.append(most)
        return solve(*args, most=most)

    monkeypatch.setattr(tuning, "solve", counted_products)
    for _ in range(2):
        step, is_definite = newton.step(sp.csc_array((matrix + matrix.T) / 2), right)
        assert is_definite
        np.testing.assert_allclose(matrix @ step, right, atol=1e-6)
    assert made == [120, 120]
    assert len(tried) == 1


def test_a_search_that_hardly_gains_ends() -> None:
    """A curved valley that rises by 5 over its length, in hundreds of short steps."""

    def log_lik(phi: np.ndarray) -> float:
        x, y = phi
        return float(x - 1e4 * (y - np.sin(20 * x) / 20) ** 2)

    def expansion(phi: np.ndarray) -> Quadratic:
        x, y = phi
        off, slope, curve = y - np.sin(20 * x) / 20, -np.cos(20 * x), 20 * np.sin(20 * x)
        gradient = np.array([1.0, 0.0]) - 2e4 * off * np.array([slope, 1.0])
        precision = 2e4 * (np.outer([slope, 1.0], [slope, 1.0]) + off * np.diag([curve, 0.0]))
        return Quadratic.of(phi, log_lik(phi), gradient, sp.csr_array(precision))

    valley: Any = SimpleNamespace(dim=2, log_lik=log_lik, expansion=expansion)
    found, n_passes = tuning.ridge_mode(valley, Progress())
    assert found.value < 1
    assert n_passes < 60
