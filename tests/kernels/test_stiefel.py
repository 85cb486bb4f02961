"""The random walk on matrices with orthonormal rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import i0e, i1e
from steps import allocate, run_steps
from toys import Array, decider

import stansub
from stansub.errors import InputError
from stansub.kernels.base import BatchControl
from stansub.kernels.proposals import Proposal
from stansub.kernels.stiefel import StiefelWalk


def uniform(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """A uniform random matrix with orthonormal rows."""
    q, r = np.linalg.qr(rng.standard_normal((columns, rows)))
    return np.asarray((q * np.sign(np.diag(r))).T)


def walked(proposal: Proposal, start: Array, n: int, seed: int = 1) -> Array:
    """Matrices of a walk that accepts everything, shape (n, rows, columns)."""
    rng, position = np.random.default_rng(seed), start.ravel(order="F")
    out = np.empty((n, *start.shape))
    for row in range(n):
        position = proposal(rng, position)[0]
        out[row] = position.reshape(start.shape, order="F")
    return out


def z_scores(values: Array, truth: Array | float) -> Array:
    """Errors of the means of values, shape (n, ...), in Monte Carlo standard errors by batch means."""
    means = values.reshape(40, -1, *values.shape[1:]).mean(1)
    return np.asarray(np.abs(means.mean(0) - truth) / (means.std(0, ddof=1) / np.sqrt(40)))


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (2, 4), (1, 3)])
def test_a_walk_that_accepts_everything_is_uniform(rows: int, columns: int) -> None:
    start = uniform(np.random.default_rng(3), rows, columns)
    drawn = walked(StiefelWalk(rows, 0.8), start, 20_000)
    assert z_scores(drawn, 0.0).max() < 4
    assert z_scores(drawn**2, 1 / columns).max() < 4
    # E[w^4] of an element of a uniform unit vector.
    assert z_scores(drawn**4, 3 / (columns * (columns + 2))).max() < 4
    products = np.einsum("nij,nkj->nik", drawn, drawn)
    assert np.abs(products - np.eye(rows)).max() < 1e-13


def test_square_matrices_of_either_determinant_are_reached() -> None:
    determinants = np.linalg.det(walked(StiefelWalk(3, 0.2), np.eye(3), 2000))
    assert z_scores(determinants, 0.0) < 4


def test_rows_stay_orthonormal_over_a_long_run_and_from_a_start_that_is_not_quite() -> None:
    start = uniform(np.random.default_rng(3), 4, 4) + 1e-8
    last = walked(StiefelWalk(4, 0.01), start, 20_000)[-1]
    assert np.abs(last @ last.T - np.eye(4)).max() < 1e-13


def test_moves_are_as_likely_to_and_fro() -> None:
    """From a uniform start the pair (from, to) has the distribution of (to, from); a drift breaks it."""
    rng, walk = np.random.default_rng(5), StiefelWalk(3, 0.5)

    def asymmetry(proposal: Proposal) -> float:
        differences = []
        for _ in range(4_000):
            there = uniform(rng, 3, 3).ravel(order="F")
            back = proposal(rng, there)[0]
            differences.append([there[0] ** 3 * back[0] - back[0] ** 3 * there[0], there[0] ** 2 - back[0] ** 2])
        return float(z_scores(np.array(differences), 0.0).max())

    assert asymmetry(walk) < 4
    assert asymmetry(Drift()) > 8


class Drift:
    """A walk whose steps are longer where the first element is large, without the ratio that this asks for."""

    smooth = False

    def __call__(self, rng: np.random.Generator, position: Array) -> tuple[Array, float]:
        return StiefelWalk(round(len(position) ** 0.5), 0.05 + position[0] ** 2)(rng, position)


@pytest.mark.slow
def test_concentrated_directions_have_their_moments_and_an_asymmetric_walk_fails() -> None:
    """Rotations of the plane with density exp(kappa cos angle): a von Mises distribution on each component."""
    kappa = 2.0
    target = decider(4, lambda w, which: np.array([kappa * w[0]]))

    def first(proposal: Proposal) -> Array:
        target.reset(np.eye(2).ravel())
        out = allocate(20_000, 4)
        run_steps(target, proposal, np.random.default_rng(2), out, len(out), BatchControl.none())
        return z_scores(out.theta[:, :1], float(i1e(kappa) / i0e(kappa)))

    assert first(StiefelWalk(2, 1.0)).max() < 4
    assert first(Drift()).max() > 8


def directions(n: int = 100) -> stansub.FunctionFactors:
    """Von Mises-Fisher directions with concentration 5 about an axis: a manifold of one row."""
    axis = np.array([0.0, 0.6, 0.8])
    return stansub.FunctionFactors(
        [f"w.1.{j}" for j in (1, 2, 3)],
        n,
        lambda w, which: np.full(len(which), 5 / n * w @ axis),
        log_lik_gradient=lambda w, which: np.tile(5 / n * axis, (len(which), 1)),
    )


def test_sampled_as_any_posterior_with_a_scale_that_is_learned_and_no_search_for_modes() -> None:
    options = {"chains": 2, "iter_warmup": 500, "iter_sampling": 2000, "inits": {"w": [[1, 0, 0]]}, "seed": 1}
    idata = stansub.sample(directions(), proposal=StiefelWalk(1), test="exact", show_progress=False, **options)
    mean = idata["posterior"]["w"].values[:, :, 0] @ np.array([0.0, 0.6, 0.8])
    truth = 1 / np.tanh(5) - 1 / 5
    assert max(z_scores(one, truth) for one in mean) < 4
    assert 0.3 < float(idata["sample_stats"]["accepted"].mean()) < 0.6
    assert "one smooth density of all parameters" in str(idata.attrs["mode_check"])
    assert "mode" not in idata.attrs["warnings"]


@pytest.mark.parametrize("proposal", [StiefelWalk(1), Drift()])
def test_what_expands_about_modes_is_refused_on_a_manifold(proposal: Proposal) -> None:
    with pytest.raises(InputError, match=r"the proposal .* does not move on one smooth density"):
        stansub.sample(directions(), proposal=proposal, control_variates=2, seed=1, show_progress=False)


def test_positions_off_the_manifold_are_refused() -> None:
    with pytest.raises(InputError, match="not orthonormal"):
        StiefelWalk(2, 0.1)(np.random.default_rng(1), np.ones(4))
    with pytest.raises(InputError, match="do not form a matrix with 3"):
        StiefelWalk(3).adapter(8)
    with pytest.raises(InputError, match="positive scale"):
        StiefelWalk(3, 0.0)
