"""Gaussian processes of low rank: formulas against dense matrices, draws against quadrature, what must be found out."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import arviz as az
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from stansub.diagnostics.comparison import compare_draws
from stansub.output import inference_data

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "papers" / "low_rank_gp"
sys.path.insert(0, str(FOLDER))

import gp  # noqa: E402

application = SimpleNamespace(**runpy.run_path(str(FOLDER / "run.py")))
Array = NDArray[np.float64]
N, D = 40, 5
ZETAS = np.linspace(0.1, 0.9, D)


class Small:
    """A data set with its exact spectra."""

    def __init__(self, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        self.distances = gp.squared_distances(rng.normal(size=(N, 3)))
        self.phis = gp.decays(ZETAS, self.distances, power=1)
        self.z = np.linalg.cholesky(self.correlation(3) + 0.3 * np.eye(N)) @ rng.normal(size=N)
        self.exact = gp.exact_spectra(self.distances, self.z, ZETAS, self.phis)

    def correlation(self, number: int) -> Array:
        return np.asarray(np.exp(-self.phis[number] * self.distances))

    def low_rank(self, rank: int) -> gp.Spectra:
        rng = np.random.default_rng(2)
        return gp.low_rank_spectra(self.distances, self.z, ZETAS, self.phis, rank=rank, rng=rng)

    def partial(self, number: int, rank: int) -> Array:
        """Sigma_epsilon of equation 14, with the exact eigenvectors."""
        values, vectors = np.linalg.eigh(self.correlation(number))
        return np.asarray((vectors[:, -rank:] * values[-rank:]) @ vectors[:, -rank:].T)


@pytest.fixture(scope="module")
def small() -> Small:
    return Small()


def dense(correlation: Array, z: Array, log_sigma2: float, log_tau2: float) -> float:
    """Log density of a multivariate normal, without the power of 2 pi."""
    covariance = np.exp(log_tau2) * correlation + np.exp(log_sigma2) * np.eye(len(z))
    return float(stats.multivariate_normal(np.zeros(len(z)), covariance).logpdf(z) + len(z) / 2 * np.log(2 * np.pi))


class TestFormulas:
    @pytest.mark.parametrize("number", range(D))
    def test_exact_log_likelihoods(self, small: Small, number: int) -> None:
        expected = dense(small.correlation(number), small.z, -0.7, 0.4)
        assert small.exact.log_lik(number, -0.7, 0.4).sum() == pytest.approx(expected, rel=1e-10)
        assert gp.dense_log_lik(small.correlation(number), small.z, -0.7, 0.4) == pytest.approx(expected, rel=1e-10)

    @pytest.mark.parametrize("rank", [1, 7, 25])
    def test_log_likelihoods_of_a_partial_decomposition(self, small: Small, rank: int) -> None:
        expected = dense(small.partial(2, rank), small.z, -0.7, 0.4)
        assert small.exact.truncated(rank).log_lik(2, -0.7, 0.4).sum() == pytest.approx(expected, rel=1e-9)

    def test_some_components(self, small: Small) -> None:
        which = np.array([5, 0, 17], np.int32)
        theta = np.array([-0.7, 0.4, ZETAS[2]])
        np.testing.assert_allclose(gp.LogLik(small.exact)(theta, which), small.exact.log_lik(2, -0.7, 0.4)[which])

    def test_prior(self) -> None:
        def expected(v: float) -> float:
            return float(stats.gamma(gp.A, scale=1 / gp.B).logpdf(np.exp(-v)) - v)

        points = [(-1.0, 0.5), (0.3, -2.0), (2.0, 1.0)]
        off = [gp.log_prior(u, v) - expected(u) - expected(v) for u, v in points]
        np.testing.assert_allclose(off, off[0], atol=1e-12)

    def test_decays(self, small: Small) -> None:
        far = np.sqrt(small.distances.max())
        squared = gp.decays(ZETAS, small.distances, power=2)
        np.testing.assert_allclose(np.exp(-squared * (ZETAS * far) ** 2), 0.01)
        np.testing.assert_allclose(np.exp(-small.phis * ZETAS * far), 0.01)

    def test_explained_variation(self, small: Small) -> None:
        values = np.linalg.eigvalsh(small.correlation(1))[::-1]
        np.testing.assert_allclose(small.exact.explained[1], np.cumsum(values) / values.sum())


class TestLowRank:
    def test_full_rank_is_exact(self, small: Small) -> None:
        whole, args = small.low_rank(N), (range(D), np.full(D, -0.7), np.full(D, 0.4))
        numbers = np.arange(D)
        np.testing.assert_allclose(
            whole.log_posterior(numbers, *args[1:]), small.exact.log_posterior(numbers, *args[1:]), rtol=1e-9
        )
        assert gp.quadrature(small.exact).distance(whole, gp.quadrature(whole)) < 1e-9

    @pytest.mark.parametrize("rank", [5, 20])
    def test_close_to_the_partial_decomposition(self, small: Small, rank: int) -> None:
        best = small.exact.values[:, :rank]
        found = small.low_rank(rank).values[:, :rank]
        assert (found <= best * (1 + 1e-9)).all()  # singular values of a projection
        np.testing.assert_allclose(found.sum(1), best.sum(1), rtol=0.02)

    def test_small_eigenvalues_are_not_lost(self) -> None:
        """Of a spectrum that decays quickly, as without a normaliser between multiplications they are."""
        distances = gp.squared_distances(np.linspace(0, 3, 60)[:, None])
        found = gp.low_rank_spectra(
            distances, np.ones(60), ZETAS[:1], np.ones(1), rank=12, rng=np.random.default_rng(1)
        ).values[0, :12]
        np.testing.assert_allclose(found, np.linalg.eigvalsh(np.exp(-distances))[:-13:-1], rtol=1e-5)


class TestErrors:
    HERE = np.array([[-0.7, 0.4, ZETAS[2]], [-1.5, 0.2, ZETAS[4]], [0.1, -0.6, ZETAS[0]]])

    def test_acceptance_probabilities(self, small: Small) -> None:
        """Against ratios of dense matrices, exact and of rank 10."""
        rank, rng = 10, np.random.default_rng(3)
        there = self.HERE + np.c_[rng.normal(0, 0.5, (3, 2)), np.zeros(3)]
        expected = []
        for x, y in zip(self.HERE, there, strict=True):
            number = int(np.flatnonzero(x[2] == ZETAS)[0])
            alphas = []
            for matrix in (small.correlation(number), small.partial(number, rank)):
                logs = [dense(matrix, small.z, *one[:2]) + gp.log_prior(*one[:2]) for one in (x, y)]
                alphas.append(min(1.0, float(np.exp(logs[1] - logs[0]))))
            expected.append(abs(alphas[0] - alphas[1]))
        found = gp.errors(small.exact, small.exact.truncated(rank), self.HERE, there)
        np.testing.assert_allclose(found.acceptance, expected, atol=1e-10)
        assert found.acceptance.max() > 0.01

    def test_gibbs_probabilities(self, small: Small) -> None:
        rank, expected = 10, []
        for x in self.HERE:
            p = []
            for matrix in (small.correlation, lambda number: small.partial(number, rank)):
                logs = np.array([dense(matrix(number), small.z, *x[:2]) for number in range(D)])
                p.append(np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum())
            expected.append(np.abs(p[0] - p[1]).max())
        found = gp.errors(small.exact, small.exact.truncated(rank), self.HERE, self.HERE)
        np.testing.assert_allclose(found.gibbs, expected, atol=1e-10)
        assert found.gibbs.max() > 0.01


class TestQuadrature:
    def test_against_importance_sampling(self, small: Small) -> None:
        """Draws from a wide t about the posterior, weighted by densities of dense matrices."""
        means, sds = (one[:2] for one in gp.quadrature(small.exact).moments())
        rng = np.random.default_rng(4)
        wide = stats.multivariate_t(means, 3 * np.diag(sds**2), df=5)
        points, numbers = wide.rvs(1500, random_state=rng), rng.integers(D, size=1500)
        matrices = [small.correlation(number) for number in range(D)]
        logs = np.array(
            [dense(matrices[k], small.z, *x) + gp.log_prior(*x) for k, x in zip(numbers, points, strict=True)]
        ) - wide.logpdf(points)
        p = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
        values = np.c_[points, ZETAS[numbers]]
        error = np.sqrt((p[:, None] ** 2 * (values - p @ values) ** 2).sum(0))
        assert (np.abs(p @ values - gp.quadrature(small.exact).moments()[0]) < 4 * error).all()
        assert error.max() < 0.05

    def test_nodes_are_enough(self, small: Small) -> None:
        found, finer = (gp.quadrature(small.exact, n=n, depth=depth) for n, depth in ((81, 40.0), (161, 60.0)))
        np.testing.assert_allclose(found.moments(), finer.moments(), rtol=1e-8)

    def test_distance(self, small: Small) -> None:
        exact, near = gp.quadrature(small.exact), small.exact.truncated(10)
        other = gp.quadrature(near)
        assert exact.distance(small.exact, exact) == pytest.approx(0, abs=1e-12)
        # min(p, q) has a kink, at which the trapezium rule is of second order.
        assert exact.distance(near, other) == pytest.approx(other.distance(small.exact, exact), abs=1e-3)
        assert exact.distance(near, other) > 0.1


OPTIONS: dict[str, Any] = {"chains": 4, "parallel_chains": 1, "iter_warmup": 400, "iter_sampling": 2000, "audit": 0.0}


def in_errors(idata: Any, truth: gp.Quadrature) -> Array:
    """Distances from the truth in Monte Carlo standard errors: of the means, and of the mean squares about the true."""
    x, (means, sds) = gp.positions(idata), truth.moments()
    values = np.concatenate([x, (x - means) ** 2], axis=-1)
    expected = np.concatenate([means, sds**2])
    columns = [values[..., k] for k in range(len(expected))]
    return np.array([(one.mean() - e) / float(az.mcse(one)) for one, e in zip(columns, expected, strict=True)])


@pytest.fixture(scope="module")
def drawn(small: Small) -> Any:
    return gp.draw(small.exact, seed=1, **OPTIONS)


class TestDraws:
    def test_exact(self, small: Small, drawn: Any) -> None:
        truth = gp.quadrature(small.exact)
        assert np.abs(in_errors(drawn, truth)).max() < 4
        x = gp.positions(drawn)[..., 2]
        for zeta, p in zip(ZETAS, truth.zeta, strict=True):
            if p > 0.01:
                assert abs((x == zeta).mean() - p) < 4 * float(az.mcse((x == zeta).astype(float)))

    @pytest.mark.slow
    def test_low_rank_has_its_own_posterior(self, small: Small) -> None:
        near = small.low_rank(8)
        idata = gp.draw(near, seed=2, **OPTIONS)
        assert np.abs(in_errors(idata, gp.quadrature(near))).max() < 4

    @pytest.mark.slow
    def test_too_small_a_rank_is_found_out(self, small: Small, drawn: Any) -> None:
        idata = gp.draw(small.low_rank(8), seed=2, **OPTIONS)
        assert np.abs(in_errors(idata, gp.quadrature(small.exact))).max() > 10
        bare, again = (
            inference_data.build(
                posterior={name: np.asarray(one["posterior"][name]) for name in gp.NAMES}, sample_stats={}, attrs={}
            )
            for one in (drawn, gp.draw(small.exact, seed=3, **OPTIONS))
        )
        assert compare_draws(idata, bare).verdict.word in ("differs", "do not use")
        assert compare_draws(again, bare).verdict.word == "agrees"

    def test_griddy_gibbs_without_determinants_fails(self, small: Small) -> None:
        def without(position: Array) -> Array:
            variances = np.exp(position[1]) * small.exact.values + np.exp(position[0])
            return np.asarray(-0.5 * (small.exact.squares / variances).sum(-1))

        idata = gp.draw(small.exact, gp.sampler(small.exact, without), seed=1, **OPTIONS)
        assert np.abs(in_errors(idata, gp.quadrature(small.exact))).max() > 10


class TestPage:
    @pytest.mark.slow
    def test_figures_of_a_rank_where_one_zeta_has_all_probability(self, small: Small) -> None:
        one, few = slice(3, 4), 8
        exact = gp.exact_spectra(small.distances, small.z, ZETAS[one], small.phis[one])
        spectra = {application.EXACT: exact, few: exact.truncated(few)}
        case = application.Case(small.phis[one], spectra, dict.fromkeys(spectra, 0.0))
        runs = {
            key: application.common.drawn(lambda spectra=value: gp.draw(spectra, seed=5, **OPTIONS))
            for key, value in spectra.items()
        }
        truth = gp.quadrature(exact)
        assert application.names_of(truth) == ["log_sigma2", "log_tau2"]
        reference = gp.draw(exact, seed=6, **OPTIONS)
        path = gp.positions(reference).reshape(-1, 3)[::50]
        errors = gp.errors(exact, spectra[few], path, gp.propose(path, np.random.default_rng(7)))
        right, wrong = (application.row(case, key, runs[key], errors, truth, reference) for key in spectra)
        assert right.rank == N
        assert right.z < 4
        assert max(right.distance, right.shift) < 1e-12
        assert right.verdict == "agrees"
        assert wrong.z > 10
        assert wrong.shift > 0.5
        assert wrong.distance == wrong.distance_best > 0.1
        assert wrong.verdict in ("differs", "do not use")
        # One zeta leaves nothing to be wrong about.
        assert errors.gibbs.max() == 0
        assert errors.acceptance.mean() > 0.01

    def test_simulated_data_have_the_shape_of_the_real(self) -> None:
        w, z = application.simulate(np.random.default_rng(1))
        assert w.shape == (4177, 8)
        assert z.shape == (4177,)
