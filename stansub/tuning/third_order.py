"""Third derivatives of the log density at the mode, for trajectories (`stansub.kernels.trajectories`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stansub.progress import Progress
from stansub.target import cubics
from stansub.target.factors import Target
from stansub.target.gradients import Objective, Team
from stansub.target.laplace import Mode
from stansub.tuning.modes.mode import Modes
from stansub.types import FloatArray

# Length of a difference, in sds, and the largest number of gradients.
_STEP, _MOST_GRADIENTS = 0.1, 2500


def with_third(modes: Modes, third: FloatArray) -> Modes:
    """Return modes of which the best has these third derivatives; the same if there are none."""
    return replace(modes, found=(replace(modes.best, third=third), *modes.found[1:])) if third.size else modes


def with_differences(modes: Modes, posterior: Target, *, threads: int, log: Progress) -> Modes:
    """Return a single mode with third derivatives from differences of gradients, unless these are too many."""
    dim = modes.best.dim
    n_gradients = dim * (dim + 1) + 1
    if len(modes.found) > 1 or modes.best.third.size or n_gradients > _MOST_GRADIENTS:
        return modes
    log("Third derivatives at the mode")
    with Team(posterior.population, threads=threads, progress=log) as team:
        third = differenced(Objective(team), modes.best)
    found = with_third(modes, third) if np.isfinite(third).all() else modes
    return replace(found, n_passes=found.n_passes + n_gradients)


def differenced(objective: Objective, mode: Mode) -> FloatArray:
    """Return third derivatives from second differences of gradients along the columns of the covariance factor.

    With g in these coordinates and e_j of length h, T_jj. is (g(e_j) + g(-e_j) - 2 g(0)) / h^2, and the same with
    e_j + e_k is T_jj. + T_kk. + 2 T_jk.

    Returns
    -------
    ndarray, shape (dim (dim + 1) (dim + 2) / 6,)
        As coefficients of products; nan where gradients are undefined.
    """
    j, k = np.tril_indices(mode.dim)
    same, n = (j == k)[:, np.newaxis], len(j)
    columns = mode.cholesky.T
    moves = _STEP * np.where(same, columns[j], columns[j] + columns[k])
    points = mode.position + np.concatenate([moves, -moves, np.zeros((1, mode.dim))])
    gradients = objective.many(points)[1] @ mode.cholesky
    second = (gradients[:n] + gradients[n:-1] - 2 * gradients[-1]) / _STEP**2
    own = second[j == k]
    tensor = np.empty((mode.dim,) * 3)
    tensor[j, k] = tensor[k, j] = np.where(same, second, (second - own[j] - own[k]) / 2)
    symmetric = (tensor + tensor.transpose(1, 2, 0) + tensor.transpose(2, 0, 1)) / 3
    return cubics.in_coordinates(cubics.packed(symmetric), np.asarray(np.linalg.inv(mode.cholesky), np.float64))
