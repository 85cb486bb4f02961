"""Search for parameters whose signs can change together without changing the posterior.

A scale without a lower bound is an example: if the likelihood reads ``tau * z`` and the priors are symmetric about 0,
the posterior is the same at (-tau, -z). Draws of a surrogate near one of these modes do not show the other.

The search does not read the program's text and needs no data: it evaluates the likelihood's arguments and the log
density of the surrogate at draws with other signs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stansub.errors import RunError
from stansub.output.layout import element_names
from stansub.target.split import Surrogate
from stansub.tuning.surrogates.sampler_runs import spread
from stansub.types import FloatArray

Places = NDArray[np.int64]

# Draws at which a symmetry is proved, and the relative rounding of values there.
_PROVED, _SAME = 3, 1e-9
# Number of elements of a parameter up to which they may also change their signs one by one.
_FEW = 8


@dataclass(frozen=True)
class Mirror:
    """A change of the signs of some parameters."""

    names: tuple[str, ...]
    """Names of the parameters, the smallest first."""
    places: Places
    """Places of their elements."""

    @classmethod
    def of(cls, mirrors: Sequence[Mirror]) -> Mirror:
        """Return the change of all signs that any of the mirrors changes."""
        found = cls((), np.empty(0, np.int64))
        for one in sorted(mirrors, key=lambda one: one.places.size)[::-1]:
            if not np.isin(one.places, found.places).all():
                found = cls(one.names + found.names, np.union1d(found.places, one.places))
        return found

    def __call__(self, theta: FloatArray) -> FloatArray:
        """Return parameters with changed signs, shape (..., dim)."""
        found = theta.copy()
        found[..., self.places] *= -1
        return found

    def overlaps(self, other: Mirror) -> bool:
        """Return whether both change the sign of some element."""
        return bool(np.isin(self.places, other.places).any())


def find_mirrors(parameters: Mapping[str, Places], surrogate: Surrogate, draws: FloatArray) -> tuple[Mirror, ...]:
    """Return changes of signs that leave the posterior unchanged; no element occurs in two of them.

    Signs change together if each change alone has the same effect on the arguments of the likelihood that it reaches.
    Changes of a sign that reach no argument are omitted.

    Parameters
    ----------
    parameters : mapping of str to ndarray of int64
        Places of the unbounded parameters, in their shapes.
    draws : ndarray, shape (n, dim)
        Draws of the surrogate.
    """
    points = spread(draws, _PROVED)
    phi = surrogate.phi(points[0])
    rounding = _SAME * (1 + np.abs(phi).max())
    changes = [(one, _value(surrogate.phi, one(points[0])) - phi) for one in _single(parameters)]
    changes = [(one, change) for one, change in changes if np.abs(change).max() > rounding]

    def candidates() -> Iterator[Mirror]:
        for one, own in changes:
            partners = [
                other
                for other, change in changes
                if other is not one and np.abs(change - own)[np.abs(change) > rounding].max() <= rounding
            ]
            if partners:
                yield from (Mirror.of([one, *some]) for some in (partners, *([partner] for partner in partners)))

    return proved(candidates(), (surrogate.phi, surrogate.model.log_density), points)


def proved(
    candidates: Iterable[Mirror], functions: Sequence[Callable[[FloatArray], Any]], points: FloatArray
) -> tuple[Mirror, ...]:
    """Return those that leave functions the same at points, up to rounding; of those that overlap, the first."""

    def is_same(of: Callable[[FloatArray], Any], theta: FloatArray, there: FloatArray) -> bool:
        here = of(theta)
        return bool(np.abs(_value(of, there) - here).max() <= _SAME * (1 + np.abs(here).max()))

    found: list[Mirror] = []
    for one in candidates:
        overlaps = any(map(one.overlaps, found))
        if not overlaps and all(is_same(of, theta, one(theta)) for theta in points for of in functions):
            found.append(one)
    return tuple(found)


def _single(parameters: Mapping[str, Places]) -> Iterator[Mirror]:
    """Yield changes of single parameters, and before them those of elements of small ones."""
    for name, places in parameters.items():
        if 1 < places.size <= _FEW:
            for element, place in zip(element_names(name, places.shape), places.ravel(), strict=True):
                yield Mirror((element,), place.reshape(1))
        yield Mirror((name,), places.ravel())


def _value(function: Callable[[FloatArray], Any], theta: FloatArray) -> Any:
    """Return the value of a function; nan if it is undefined."""
    try:
        return function(theta)
    except RunError:
        return np.nan
