"""Connected components of the matrix that says which arguments of the likelihood each effect reaches."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


def square_components(reads: sp.csc_array) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return columns and rows that share entries, directly or through others, if they are equally many."""
    m, n = reads.shape
    entries = reads.tocoo()
    graph = sp.csr_array((np.ones(entries.nnz), (entries.row, m + entries.col)), shape=(m + n, m + n))
    n_components, labels = sp.csgraph.connected_components(graph, directed=False)
    columns, rows = (
        np.split(np.argsort(own, kind="stable"), np.cumsum(np.bincount(own, minlength=n_components))[:-1])
        for own in (labels[m:], labels[:m])
    )
    return [(own, beside) for own, beside in zip(columns, rows, strict=True) if len(own) == len(beside)]


def slots(reads: sp.csc_array) -> NDArray[np.int64]:
    """Return a number for each effect, such that no two of a number reach an argument, directly or through others."""
    _, labels = sp.csgraph.connected_components(sp.csr_array(reads.T @ reads), directed=False)
    order = np.argsort(labels, kind="stable")
    first = np.searchsorted(labels[order], labels[order])
    found = np.empty(len(labels), np.int64)
    found[order] = np.arange(len(labels)) - first
    return found
