"""Parts in which a Gibbs sampler draws coefficients: all at once, unless their precision's factor would be dear.

The precision of crossed effects, such as those of users and films, is sparse, but its factor has an element for nearly
each two films. That of the effects of one grouping factor, given those of the others, is sparse. Coefficients without
scales are drawn with each part, which matters: effects and their mean are correlated (Papaspiliopoulos, Roberts and
Zanella 2020, Scalable inference for crossed random effects models).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from stansub.target.cholesky import Pattern, pattern_of

Places = NDArray[np.int64]

# Operations of the factor of joined parts relative to both, and most groups of effects to join.
_JOINED, _GROUPS = 2.0, 20


class Part(NamedTuple):
    """Coefficients that are drawn together, and the pattern of their factor, in its order."""

    members: Places
    pattern: Pattern

    @property
    def arrays(self) -> tuple[NDArray[np.int32], NDArray[np.int32], Places]:
        """Return starts and rows of the factor's columns, and the coefficient at each of its places."""
        return self.pattern.starts, self.pattern.rows, self.members[self.pattern.order]


def parts_of(precision: sp.csc_array, groups: Sequence[Places]) -> list[Part]:
    """Return parts whose factors are cheap: one with all coefficients if possible.

    Parameters
    ----------
    precision : sparse array, shape (n, n)
        Its pattern is that of the precision given the scales.
    groups : sequence of arrays
        Coefficients that depend on the same scales; those of different groups are independent a priori.
    """

    def part(members: Places) -> Part:
        return Part(members, pattern_of(sp.csc_array(precision[members][:, members])))

    whole = part(np.arange(precision.shape[0]))
    if not whole.pattern.is_dear or not 1 < len(groups) <= _GROUPS:
        return [whole]
    shared = np.setdiff1d(whole.members, np.concatenate(groups))
    found: list[Part] = []
    for own in sorted((part(np.union1d(group, shared)) for group in groups), key=_size, reverse=True):
        for k, other in enumerate(found):
            joined = part(np.union1d(own.members, other.members))
            apart = own.pattern.operations + other.pattern.operations
            if not joined.pattern.is_dear or joined.pattern.operations <= _JOINED * apart:
                found[k] = joined
                break
        else:
            found.append(own)
    return found if len(found) > 1 else [whole]


def groups_of(reads: sp.csr_array, sizes: Places, places: Places, rows: sp.csr_array) -> list[Places]:
    """Return the combinations of effects that depend on the same scales; groups that share combinations are joined.

    Parameters
    ----------
    reads : sparse array, shape (n_blocks, dim)
        Not 0 for the parameters on which the scales of a block of effects depend.
    sizes, places : ndarray
        Sizes of the blocks, and places of their effects among the coefficients, block by block.
    rows : sparse array, shape (n, n)
        The coefficients from their combinations.
    """
    numbers = dict[bytes, int]()
    keys = [reads.indices[first:end].tobytes() for first, end in pairwise(reads.indptr)]
    group = np.repeat([numbers.setdefault(key, len(numbers)) for key in keys], sizes)
    of_effects = sp.csr_array((np.ones(len(places)), (group, places)), shape=(len(numbers), rows.shape[0]))
    reached = sp.csr_array(of_effects @ abs(rows))
    n, joined = connected_components(reached @ reached.T, directed=False)
    return [np.unique(reached[joined == k].indices).astype(np.int64) for k in range(n)]


def _size(part: Part) -> int:
    return len(part.members)
