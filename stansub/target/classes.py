"""Classes of observations with similar constants, for random picks in proportion to constants in four bytes each.

A class has the largest constant that its members may have, at most 2^(1/8) times their own. Constants are only rounded
up, so bounds stay bounds; decisions are exact with any bounds, and pick a twentieth more observations. A pick selects a
class in proportion to its constant times its members, and then any of its members.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stansub.types import FloatArray

# Classes per factor of two, and the key of constants of 0, which are never picked.
_STEPS, _NONE = 8, np.iinfo(np.int16).min


class Classes(NamedTuple):
    """Observations with positive constants, by class."""

    keys: NDArray[np.int16]
    """Shape (k,): key of each class, increasing."""
    starts: NDArray[np.int64]
    """Shape (k + 1,): start of each class among the members."""
    members: NDArray[np.int32]

    @property
    def constants(self) -> FloatArray:
        """Return the constant of each class, at least those of its members, shape (k,)."""
        return constants_of(self.keys)

    @property
    def total(self) -> float:
        """Return the sum of the constants of all members."""
        return float(self.constants @ np.diff(self.starts))

    @classmethod
    def of(cls, parts: Sequence[NDArray[np.int16]]) -> Classes:
        """Return classes from the keys (see `keys`) of consecutive parts of the observations."""
        counts = np.zeros(1 << 16, np.int64)
        for part in parts:
            counts += _counted(part)
        counts[_index(np.array([_NONE], np.int16))] = 0
        present = np.flatnonzero(counts)
        starts = np.concatenate([[0], np.cumsum(counts[present])])
        members, place = np.empty(starts[-1], np.int32), np.zeros(1 << 16, np.int64)
        place[present] = starts[:-1]
        first = 0
        for part in parts:
            own = _index(part)
            order = np.argsort(own, kind="stable")
            order = order[own[order] > 0]
            sorted_keys = own[order]
            # Within a class, the members of a part are adjacent.
            begins = np.searchsorted(sorted_keys, sorted_keys, side="left")
            members[place[sorted_keys] + np.arange(len(order)) - begins] = first + order
            place += np.bincount(sorted_keys, minlength=1 << 16)
            first += len(part)
        return cls((present - (1 << 15)).astype(np.int16), starts, members)


def keys(constants: FloatArray) -> NDArray[np.int16]:
    """Return the classes of observations from their constants, which must be finite and not negative."""
    positive = constants > 0
    found = np.ceil(_STEPS * np.log2(constants, out=np.zeros_like(constants), where=positive))
    found += constants > constants_of(found)  # rounding may have decreased it
    found[~positive] = _NONE
    return np.asarray(found, np.int16)


def constants_of(key: NDArray[np.floating] | NDArray[np.int16]) -> FloatArray:
    """Return the constants of classes from their keys."""
    return np.asarray(np.exp2(np.asarray(key, np.float64) / _STEPS))


def _index(key: NDArray[np.int16]) -> NDArray[np.int64]:
    """Return indices from 0, the index of constants of 0."""
    return key.astype(np.int64) + (1 << 15)


def _counted(key: NDArray[np.int16]) -> NDArray[np.int64]:
    return np.bincount(_index(key), minlength=1 << 16)


class Pooled(NamedTuple):
    """Classes of observations in several partitions, of which only the sizes are known here.

    A place among all members is that in the class of the first partition, then the second, and so on.
    """

    keys: NDArray[np.int16]
    """Shape (k,): key of each class, increasing."""
    counts: NDArray[np.int64]
    """Shape (partitions, k): members of each class in each partition."""

    @classmethod
    def of(cls, parts: Sequence[tuple[NDArray[np.int16], NDArray[np.int64]]]) -> Pooled:
        """Return the classes of partitions from the keys and sizes of the classes of each."""
        found = np.unique(np.concatenate([own for own, _ in parts]))
        counts = np.zeros((len(parts), len(found)), np.int64)
        for row, (own, sizes) in zip(counts, parts, strict=True):
            row[np.searchsorted(found, own)] = sizes
        return cls(found, counts)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Return the start of each class among all members, shape (k + 1,)."""
        return np.concatenate([[0], np.cumsum(self.counts.sum(axis=0))])

    @property
    def total(self) -> float:
        """Return the sum of the constants of all members."""
        return float(constants_of(self.keys) @ self.counts.sum(axis=0))

    def located(self, places: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return partitions, and places among the members of these, from places among all members."""
        starts, ends = self.starts, np.cumsum(self.counts, axis=0)
        classes = np.searchsorted(starts, places, side="right") - 1
        within = places - starts[classes]
        partitions = np.empty(len(places), np.int64)
        for one in np.unique(classes):  # there are fewer classes than places, and there may be many partitions
            here = classes == one
            partitions[here] = np.searchsorted(ends[:, one], within[here], side="right")
        own_starts = np.cumsum(self.counts, axis=1) - self.counts
        before = ends[partitions, classes] - self.counts[partitions, classes]
        return partitions, own_starts[partitions, classes] + within - before
