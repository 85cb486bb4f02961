"""Search for effects that are parameters themselves and normal, about a mean, given scales: u = m + S z.

The gradient of their prior, -(S S')^-1 (u - m), is affine in u and in the mean m, which is a linear function of other
parameters. Differences of gradients over whole units are therefore exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target.prior_means import PriorMeans
from stansub.target.separated import Separated
from stansub.target.soft_minima import SoftMinima
from stansub.tuning.effects.effect_functions import Functions, functions_of
from stansub.types import FloatArray

Gradient = Callable[[FloatArray], FloatArray]
Places = NDArray[np.int64]

# Relative differences up to which gradients are equal; most effects of a block.
ROUNDING, _LARGEST = 1e-7, 16


def means_of(prior: Gradient, theta: FloatArray, others: Places, candidates: Places) -> PriorMeans:
    """Return the means of coefficients as linear functions of other parameters, and the means of these, and so on.

    Parameters
    ----------
    prior : callable
        Gradient of the log density without the likelihood.
    theta : ndarray, shape (dim,)
    others : ndarray of int64
        Places of the coefficients.
    candidates : ndarray of int64
        Places of parameters that the likelihood does not read.
    """
    means = PriorMeans.none(len(theta))
    while others.size and candidates.size:
        level = _level(without_means(prior, means), means.removed(theta), others, candidates)
        if not level.nnz:
            break
        means = means.joined(PriorMeans.of(level))
        others = np.unique(level.indices).astype(np.int64)
        candidates = np.setdiff1d(candidates, others)
    return means


def without_means(prior: Gradient, means: PriorMeans) -> Gradient:
    """Return the gradient by parameters without their means."""
    into = means.inverse

    def gradient(x: FloatArray) -> FloatArray:
        return np.asarray(into.T @ prior(into @ x))

    return gradient


def _level(prior: Gradient, theta: FloatArray, others: Places, candidates: Places) -> sp.csr_array:
    """Return the mean of each coefficient as a linear function of candidates, shape (dim, dim)."""
    dim, n = len(theta), len(candidates)

    def slopes(steps: FloatArray) -> FloatArray:
        return prior(_with(theta, candidates, theta[candidates] + steps))[others]

    size, unit = ROUNDING * (1 + np.abs(slopes(np.zeros(n)))), np.ones(n)
    separated = Separated.of(slopes, np.zeros(n), unit)
    once, twice = (separated.changes(slopes, np.zeros(n), step * unit) for step in (1, 2))
    bent = (abs(twice - 2 * once) - ROUNDING * abs(once)).tocoo()
    is_linear = np.bincount(bent.col, bent.data > size[bent.row], minlength=n) == 0
    found = once.tocoo()
    kept = (np.abs(found.data) > size[found.row]) & is_linear[found.col]
    if not kept.any():
        return sp.csr_array((dim, dim))
    entries = found.data[kept], (others[found.row[kept]], candidates[found.col[kept]])
    variances = _variances(_precisions(prior, theta, _blocks(prior, theta, others)), dim)
    means = sp.csr_array(variances @ sp.csr_array(entries, shape=(dim, dim)))
    means.data[np.abs(means.data) <= ROUNDING] = 0
    means.eliminate_zeros()
    return means


def _variances(precisions: Sequence[tuple[Places, FloatArray]], dim: int) -> sp.csr_array:
    """Return the matrix with the inverses of the blocks' precisions, shape (dim, dim)."""
    if not precisions:
        return sp.csr_array((dim, dim))
    values, rows, columns = list[FloatArray](), list[Places](), list[Places]()
    for block, own in precisions:
        values.append(np.asarray(np.linalg.pinv(own, hermitian=True).ravel(), np.float64))
        rows.append(np.repeat(block, block.shape[1], axis=1).ravel())
        columns.append(np.tile(block, block.shape[1]).ravel())
    parts = np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))
    return sp.csr_array(sp.coo_array(parts, shape=(dim, dim)))


def centred(prior: Gradient, theta: FloatArray, moved: FloatArray, others: Places, scales: Places) -> Functions | None:
    """Return coefficients whose prior is normal about 0 with S a function of other parameters; None if it is undefined.

    Parameters
    ----------
    moved : ndarray, shape (dim,)
        ``theta`` with other scales.
    """
    dim, blocks = len(theta), _blocks(prior, theta, others)
    here, there, far = (_precisions(prior, one, blocks, step) for one, step in ((theta, 1), (moved, 1), (theta, 2)))
    found = [Functions.none(dim)]
    for which, ((block, before), (_, after), (_, twice)) in enumerate(zip(here, there, far, strict=True)):
        size = ROUNDING * (1 + np.abs(before))
        changed = (np.abs(after - before) > size).any(axis=(1, 2)) & (np.abs(twice - before) <= size).all(axis=(1, 2))
        if not changed.any():
            continue
        own = _functions(before[changed])
        slopes = np.zeros((*own.shape, len(scales)))
        for j, k in enumerate(scales):
            precisions = _precisions(prior, theta + _unit(dim, k), blocks)[which][1]
            slopes[..., j] = _functions(precisions[changed]) - own
        if not (np.isfinite(own).all() and np.isfinite(slopes).all()):
            return None
        found.append(_joined(block[changed], own, np.where(np.abs(slopes) < ROUNDING, 0.0, slopes), theta, scales))
    whole = found[0]
    for one in found[1:]:
        whole = whole.joined(one)
    return whole


def _joined(block: Places, own: FloatArray, slopes: FloatArray, theta: FloatArray, scales: Places) -> Functions:
    n, k = block.shape
    flat = slopes.reshape(-1, len(scales))
    at, column = np.nonzero(flat)
    rows = sp.csr_array((flat[at, column], (at, scales[column])), shape=(len(flat), len(theta)))
    constants = own.ravel() - flat @ theta[scales]
    return Functions(np.full(n, k), block.ravel(), SoftMinima.affine(rows, constants), np.ones(n, bool))


def _functions(precisions: FloatArray) -> FloatArray:
    """Return the functions of S with S S' the inverse of each precision; NaN for those that are not positive."""
    if precisions.shape[-1] == 1:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(-0.5 * np.log(precisions[..., 0]))
    try:
        return functions_of(np.linalg.cholesky(np.linalg.inv(precisions)))
    except np.linalg.LinAlgError:
        n, k, _ = precisions.shape
        return np.full((n, k * (k + 1) // 2), np.nan)


def _blocks(prior: Gradient, theta: FloatArray, others: Places) -> list[Places]:
    """Return the coefficients whose slopes depend on each other, shape (n, k) for blocks of each size k."""
    start = theta.copy()
    start[others] = 0
    here = prior(start)[others]
    step = np.modf(np.arange(1, len(others) + 1) * 0.6180339887498949)[0] + 0.5
    together, moved = (_with(start, others, one) for one in (1.0, step))
    alone = here - prior(together)[others]
    if (np.abs(here - prior(moved)[others] - alone * step) <= ROUNDING * (1 + np.abs(alone))).all():
        return [others[:, np.newaxis]]
    columns = []
    for k in others:
        change = here - prior(start + _unit(len(theta), k))[others]
        columns.append(sp.csc_array((np.abs(change) > ROUNDING * (1 + np.abs(change).max()))[:, np.newaxis]))
    n, labels = sp.csgraph.connected_components(sp.hstack(columns), directed=False)
    sizes = np.bincount(labels, minlength=n)
    order = np.argsort(labels, kind="stable")
    return [others[order[sizes[labels[order]] == k]].reshape(-1, k) for k in np.unique(sizes) if k <= _LARGEST]


def _precisions(
    prior: Gradient, theta: FloatArray, blocks: Sequence[Places], step: float = 1
) -> list[tuple[Places, FloatArray]]:
    """Return each of the blocks with the precisions of its effects by differences over a step, shape (n, k, k)."""
    start = theta.copy()
    for block in blocks:
        start[block] = 0
    here, found = prior(start), [np.empty((*block.shape, block.shape[1])) for block in blocks]
    for slot in range(max((block.shape[1] for block in blocks), default=0)):
        moved = start.copy()
        for block in blocks:
            moved[block[:, slot : slot + 1]] = step
        change = (here - prior(moved)) / step
        for block, own in zip(blocks, found, strict=True):
            if slot < block.shape[1]:
                own[..., slot] = change[block]
    return [(block, (own + own.swapaxes(1, 2)) / 2) for block, own in zip(blocks, found, strict=True)]


def _unit(dim: int, k: int) -> FloatArray:
    found = np.zeros(dim)
    found[k] = 1
    return found


def _with(theta: FloatArray, places: Places, values: float | FloatArray) -> FloatArray:
    found = theta.copy()
    found[places] = values
    return found
