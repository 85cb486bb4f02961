"""Pólya-Gamma Gibbs sampling against quadrature, its conditional draws against exact moments; broken ones must fail."""

from __future__ import annotations

import pickle
import re
import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import statistic, unconstrained
from numpy.typing import NDArray
from rich.console import Console

import stansub
from stansub import DrawsWarning, FunctionFactors, InputError, Metropolis, OnParameters, PolyaGamma, Sequence
from stansub.kernels.base import State
from stansub.kernels.polya_gamma import FixedSize, PolyaGammaKernel, Regression
from stansub.output import inference_data
from stansub.output.record import record_of
from stansub.output.summary import render

pytest.importorskip("polyagamma", reason="the package polyagamma is missing: pip install 'stansub[papers]'")

az = inference_data.arviz_module()

Array = NDArray[np.float64]
MAX_Z = 4.5
N, PRIOR_MEAN, PRIOR_SD = 60, np.array([0.5, -1.0]), np.array([1.5, 0.8])
_RNG = np.random.default_rng(3)
X = _RNG.normal([0.5, 0.0], 1.0, (N, 2))
Y = (_RNG.random(N) < 1 / (1 + np.exp(-X @ [1.2, -1.5]))).astype(float)
REGRESSION = Regression(X, Y, PRIOR_MEAN, np.diag(PRIOR_SD**-2.0))
BETA = np.array([1.0, -2.0])


def target(x: Array = X, y: Array = Y) -> FunctionFactors:
    """The same posterior as a sum over observations."""
    return FunctionFactors(
        ["beta.1", "beta.2"],
        len(x),
        lambda beta, which: y[which] * (x[which] @ beta) - np.logaddexp(0, x[which] @ beta),
        log_density=lambda beta: float(-0.5 * (((beta - PRIOR_MEAN) / PRIOR_SD) ** 2).sum()),
    )


@lru_cache
def truth() -> tuple[Array, Array]:
    """Posterior mean and sd, by quadrature."""
    axes = np.linspace(-2.0, 5.0, 350), np.linspace(-6.0, 2.0, 400)
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    eta = grid @ X.T
    log_weight = eta @ Y - np.logaddexp(0, eta).sum(axis=1) - 0.5 * (((grid - PRIOR_MEAN) / PRIOR_SD) ** 2).sum(axis=1)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean = weight @ grid
    return mean, np.sqrt(weight @ (grid - mean) ** 2)


def chain(regression: Regression, m: int | None = None, n_steps: int = 12_000, seed: int = 1) -> Array:
    """Draws from a kernel, shape (n_steps, 2), the first 100 left out."""
    kernel = PolyaGammaKernel(regression, np.arange(2), 2, None if m is None else FixedSize(m))
    rng, state = np.random.default_rng(seed), State(np.zeros(2))
    draws = np.empty((n_steps + 100, 2))
    for row in range(len(draws)):
        state, _ = kernel.step(rng, state, {})
        draws[row] = state.position
    return draws[100:]


def z_of(draws: Array) -> Array:
    """Errors of means and sds in their Monte Carlo standard errors."""
    mean, sd = truth()
    each = [
        ((own.mean() - mean[k]) / az.mcse(own), (own.std() - sd[k]) / az.mcse(own, method="sd"))
        for k, own in enumerate(draws.T[:, np.newaxis])
    ]
    return np.abs(np.array(each))


@dataclass(frozen=True)
class WithoutTheHalf(Regression):
    """The control: y in place of y - 1/2."""

    @property
    def pull(self) -> Array:  # type: ignore[override]
        return self.x.T @ self.y + self.prior_precision @ self.prior_mean


@dataclass(frozen=True)
class WithoutThePriorMean(Regression):
    """The control: the prior's precision alone."""

    @property
    def pull(self) -> Array:  # type: ignore[override]
        return self.x.T @ (self.y - 0.5)


@dataclass(frozen=True)
class Scaled(Regression):
    """The control: a mini-batch scaled by (N / m)^power; 1 is right, 0 not at all, 2 twice."""

    power: float = 1.0

    def precision(self, rng: np.random.Generator, beta: Array, which: Any = None) -> Array:
        found = super().precision(rng, beta, which) - self.prior_precision
        share = 1.0 if which is None else len(which) / self.n_observations
        return found * share ** (1 - self.power) + self.prior_precision


class TestExact:
    def test_moments_are_those_of_quadrature(self) -> None:
        assert z_of(chain(REGRESSION)).max() < MAX_Z

    @pytest.mark.parametrize("broken", [WithoutTheHalf, WithoutThePriorMean])
    def test_broken_pulls_fail(self, broken: type[Regression]) -> None:
        wrong = broken(X, Y, PRIOR_MEAN, REGRESSION.prior_precision)
        assert z_of(chain(wrong, n_steps=4000)).max() > 2 * MAX_Z

    def test_draws_given_the_precision(self) -> None:
        precision = np.array([[3.0, 1.2], [1.2, 2.0]])
        rng = np.random.default_rng(2)
        draws = np.array([REGRESSION.draw(rng, precision) for _ in range(20_000)])
        covariance = np.linalg.inv(precision)
        centred = draws - covariance @ REGRESSION.pull
        assert (np.abs(centred.mean(axis=0)) < MAX_Z * np.sqrt(np.diag(covariance) / len(draws))).all()
        products = centred[:, :, np.newaxis] * centred[:, np.newaxis]
        z = (products.mean(axis=0) - covariance) / (products.std(axis=0) / np.sqrt(len(draws)))
        assert np.abs(z).max() < MAX_Z


class TestPrecision:
    """E[omega | beta] = tanh(eta / 2) / (2 eta) (Polson, Scott and Windle 2013)."""

    def z(self, regression: Regression, m: int | None) -> float:
        rng = np.random.default_rng(4)
        batches = (None if m is None else rng.choice(N, m, replace=False) for _ in range(4000))
        found = np.array([regression.precision(rng, BETA, which) for which in batches])
        eta = X @ BETA
        expected = (X * (np.tanh(eta / 2) / (2 * eta))[:, np.newaxis]).T @ X + REGRESSION.prior_precision
        error = found.std(axis=0) / np.sqrt(len(found))
        return float(np.abs((found.mean(axis=0) - expected) / error).max())

    @pytest.mark.parametrize("m", [None, 6, 30])
    def test_it_is_unbiased(self, m: int | None) -> None:
        assert self.z(REGRESSION, m) < MAX_Z

    @pytest.mark.parametrize("power", [0.0, 2.0])
    def test_wrong_scales_fail(self, power: float) -> None:
        wrong = Scaled(X, Y, PRIOR_MEAN, REGRESSION.prior_precision, power)
        assert self.z(wrong, None) < MAX_Z
        assert self.z(replace(wrong, power=1.0), 30) < MAX_Z
        assert self.z(wrong, 30) > 4 * MAX_Z

    def test_it_is_put_together_from_chunks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("stansub.kernels.polya_gamma._CHUNK", 7)
        assert self.z(REGRESSION, None) < MAX_Z
        assert self.z(REGRESSION, 30) < MAX_Z


class TestMiniBatches:
    @pytest.mark.slow
    def test_draws_spread_less_as_they_grow(self) -> None:
        """Means and sds are off by more standard errors than in the exact chain, and by less with larger batches."""
        _, sd = truth()
        draws = [chain(REGRESSION, m, n_steps=8000) for m in (10, 25, 50)]
        too_wide = np.array([(own.std(axis=0) / sd - 1).mean() for own in draws])
        assert too_wide[0] > 2 * too_wide[1] > 4 * too_wide[2] > 0
        assert z_of(draws[0]).max() > 2 * MAX_Z
        assert z_of(draws[1]).max() > 2 * MAX_Z

    @pytest.mark.parametrize("power", [0.0, pytest.param(2.0, marks=pytest.mark.slow)])
    def test_wrong_scales_do_worse_than_the_right_one(self, power: float) -> None:
        wrong = Scaled(X, Y, PRIOR_MEAN, REGRESSION.prior_precision, power)
        right, off = (z_of(chain(one, 50, n_steps=8000)).max() for one in (REGRESSION, wrong))
        assert off > 2 * max(right, MAX_Z)

    def test_all_the_data_are_the_exact_kernel(self) -> None:
        np.testing.assert_array_equal(chain(REGRESSION, N, n_steps=20), chain(REGRESSION, None, n_steps=20))

    def test_sizes_may_be_drawn(self) -> None:
        kernel = PolyaGammaKernel(REGRESSION, np.arange(2), 2, lambda rng, beta: int(rng.binomial(N, 0.04)))
        rng, state = np.random.default_rng(1), State(np.zeros(2))
        sizes = [kernel.step(rng, state, {})[1]["mini_batch"] for _ in range(200)]
        assert min(sizes) == 3  # one more than there are weights, where fewer were drawn
        assert len(set(sizes)) > 2
        assert kernel.counts()["n_obs_evaluated"] == sum(sizes)


class TestRecipe:
    KERNEL = PolyaGamma(X, Y, ["beta"], PRIOR_SD, PRIOR_MEAN)

    def drawn(self, kernel: Any, **options: Any) -> Any:
        given: Any = {"iter_warmup": 50, "iter_sampling": 3000, "control_variates": 0, "seed": 2, "chains": 2}
        return stansub.sample(target(), kernel=kernel, show_progress=False, **given | options)

    def test_draws_statistics_and_summary(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DrawsWarning)  # there is no decision to be audited
            idata = self.drawn(self.KERNEL)
        draws = inference_data.group(idata, "posterior")["beta"].values
        mean, sd = truth()
        for k in range(2):
            own = draws[..., k]
            assert abs(own.mean() - mean[k]) < MAX_Z * az.mcse(own)
            assert abs(own.std() - sd[k]) < MAX_Z * az.mcse(own, method="sd")
        record = record_of(idata)
        assert (record.share_of_data, record.passes_per_step, record.audit) == (None, 1.0, None)
        out = StringIO()
        render(idata, Console(file=out, width=120), verbose=True)
        shown = " ".join(out.getvalue().split())
        assert "; no accept/reject decisions; 1 pass over the data a step" in shown
        assert "Decisions none: each step is drawn" in shown
        assert "Data 1 pass over the data per step" in shown
        assert "Audit" not in shown

    def test_mini_batches_are_recorded(self) -> None:
        idata = self.drawn(replace(self.KERNEL, mini_batch=20), iter_sampling=100)
        assert (statistic(idata, "mini_batch") == 20).all()
        assert record_of(idata).passes_per_step == pytest.approx(1 / 3)

    def test_beside_another_kernel(self) -> None:
        """The decisions are those of the other one, and its observations."""
        other = OnParameters(Metropolis("random-walk"), ["beta.1"])
        idata = self.drawn(Sequence(gibbs=self.KERNEL, walk=other), test="exact", iter_sampling=200)
        stats = inference_data.group(idata, "sample_stats")
        assert (stats["n_decisions"].values == 1).all()
        assert (stats["gibbs.mini_batch"].values == N).all()
        record = record_of(idata)
        assert record.share_of_data == 1.0
        assert record.acceptance_rate == pytest.approx(stats["walk.accepted"].values.mean())

    @pytest.mark.parametrize("nested", [False, True])
    def test_observations_of_both_count(self, nested: bool) -> None:
        walk = OnParameters(Metropolis("random-walk", exact=True), ["beta.1"])
        gibbs = Sequence(gibbs=self.KERNEL) if nested else self.KERNEL
        idata = self.drawn(Sequence(gibbs=gibbs, walk=walk), iter_sampling=200)
        # The variables of all observations, and both ends of a move of the walk.
        assert record_of(idata).passes_per_step == pytest.approx(1 + 2)

    def test_a_run_is_resumed(self, tmp_path: Path) -> None:
        kernel = replace(self.KERNEL, mini_batch=20)
        whole = self.drawn(kernel, iter_sampling=60)
        self.drawn(kernel, iter_sampling=30, checkpoint=tmp_path / "run")
        more = self.drawn(kernel, iter_sampling=60, resume=tmp_path / "run")
        np.testing.assert_array_equal(unconstrained(whole), unconstrained(more))
        evaluated = [inference_data.group(one, "chain_stats")["n_obs_evaluated"].values for one in (whole, more)]
        np.testing.assert_array_equal(*evaluated)

    def test_weights_are_found_in_the_order_of_the_columns(self) -> None:
        class Context:
            names = ("b", "c", "a")

        kernel = PolyaGamma(X, Y, ["a", "b"], 1.0).bind(Context())  # type: ignore[arg-type]
        state, _ = kernel.step(np.random.default_rng(1), State(np.array([0.0, 7.0, 0.0])), {})
        expected = np.random.default_rng(1)
        plain = Regression(X, Y, np.zeros(2), np.eye(2))
        np.testing.assert_allclose(state.position[[2, 0]], plain.draw(expected, plain.precision(expected, np.zeros(2))))
        assert state.position[1] == 7.0

    def test_it_travels(self) -> None:
        again = pickle.loads(pickle.dumps(replace(self.KERNEL, mini_batch=7)))
        assert again.mini_batch == 7

    def test_what_makes_no_kernel_is_refused(self) -> None:
        class Context:
            names = ("beta.1", "beta.2", "beta.3")

        for given, message in (
            ({"x": X[:, 0]}, "needs x of shape"),
            ({"y": Y[:-1]}, "needs x of shape"),
            ({"y": Y + 1}, "needs y of 0 and 1"),
            ({"prior_sd": 0.0}, "prior_sd must be above 0"),
            ({"mini_batch": 0}, "mini_batch must be at least 1"),
        ):
            with pytest.raises(InputError, match=message):
                replace(self.KERNEL, **given)
        with pytest.raises(InputError, match="beta are 3 parameters, but x has 2 columns"):
            self.KERNEL.bind(Context())  # type: ignore[arg-type]


def test_the_script_of_the_page_runs() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "kernels.md").read_text(encoding="utf-8")
    script = next(one for one in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "PolyaGamma" in one)
    made: dict[str, Any] = {}
    exec(script.replace("seed=1)", "seed=1, show_progress=False)"), made)
    assert (inference_data.group(made["idata"], "sample_stats")["mini_batch"].values == 2000).all()


def test_without_the_package_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stansub.kernels.polya_gamma.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'stansub\[papers\]'"):
        PolyaGamma(X, Y, ["beta"], 1.0)
