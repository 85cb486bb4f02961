"""Search for a map of parameters, from one mode of a posterior to another, that leaves the posterior unchanged.

In mixtures, the components can be exchanged: elements of vectors change places, and a weight p becomes 1 - p. In a
model of misclassified outcomes, sensitivity becomes 1 - specificity, specificity becomes 1 - sensitivity, and all
coefficients change their signs. On the unconstrained space, such maps only permute coordinates and change signs: if p
becomes 1 - p, its logit changes its sign. Vectors of a simplex are permuted as they are.

Two modes suggest the map, and the log density at draws and at their images shows whether the posterior is unchanged.
The search needs no text of a program.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import orjson
import scipy
from numpy.typing import NDArray

from stansub.errors import InputError, RunError
from stansub.output.layout import Layout, element_names
from stansub.target.factors import Density
from stansub.types import FloatArray

Places = NDArray[np.int64]

# Root mean square difference in sds up to which an image of one mode is the other; the share of the difference without
# an exchange that may remain if neither is alike, because chains have not converged; and what an exchange of two
# parameters costs, so that parameters of like values keep their places.
_ALIKE, _LEFT, _DEAR = 0.5, 0.3, 0.25
# Sds by which a map must move a mode: near 0, a change of a sign moves nothing.
_MOVED = 2.0
# Difference in log density up to which a posterior is unchanged, absolute and relative to the log density.
_EQUAL, _ROUNDING = 0.01, 1e-9
# Number of elements in a dimension up to which they are permuted, or change their signs one by one.
_FEW = 12
# Maps that are tried, the most likely first.
_TRIED = 8


class Coordinates:
    """Coordinates in which maps between modes are simple.

    Parameters that have as many elements on the unconstrained space are there; others, such as simplexes, are as the
    program declares them.

    Attributes
    ----------
    places : dict of str to ndarray of int64
        Places of each parameter's elements, in its shape.
    n_free : int
        Number of coordinates on the unconstrained space, which precede the others.
    """

    def __init__(self, model: Density) -> None:
        self.model = model
        free = Layout.from_names(model.param_unc_names())
        self._own = Layout.from_names(model.param_names())
        self.places: dict[str, Places] = {}
        found: dict[bool, list[Places]] = {True: [], False: []}
        here = sorted(self._own.names, key=lambda name: free.shapes.get(name) != self._own.shapes[name])
        size = 0
        for name in here:
            is_free = free.shapes.get(name) == self._own.shapes[name]
            columns = (free if is_free else self._own).columns[name]
            found[is_free].append(columns.ravel())
            self.places[name] = size + np.arange(columns.size).reshape(columns.shape)
            size += columns.size
        self._free, self._bound = (np.concatenate([np.empty(0, np.int64), *found[one]]) for one in (True, False))
        self.n_free = len(self._free)

    def is_free(self, name: str) -> bool:
        """Return whether the coordinates of a parameter are those of the unconstrained space."""
        return bool((self.places[name] < self.n_free).all())

    def owner(self, place: int) -> str:
        """Return the parameter to which a coordinate belongs."""
        return next(name for name, places in self.places.items() if place in places.ravel())

    def of(self, theta: FloatArray) -> FloatArray:
        """Return the coordinates of an unconstrained point, shape (n,)."""
        bound = self.model.param_constrain(theta)[self._bound] if len(self._bound) else np.empty(0)
        return np.concatenate([theta[self._free], bound])

    def constrained(self, theta: FloatArray) -> FloatArray:
        """Return the values of the coordinates as the program declares them, shape (n,)."""
        flat = self.model.param_constrain(theta)
        return np.concatenate([flat[self._own.columns[name].ravel()] for name in self.places])

    def centred(self, theta: FloatArray, place: int) -> FloatArray:
        """Return a point with 0 for one of the coordinates on the unconstrained space, shape (dim,)."""
        found = theta.copy()
        found[self._free[place]] = 0.0
        return found

    def names(self, name: str) -> list[str]:
        """Return names of a parameter's elements."""
        return element_names(name, self.places[name].shape)

    def moved(self, theta: FloatArray, source: Places, signs: FloatArray) -> FloatArray:
        """Return the unconstrained point whose coordinates are those of ``theta`` at ``source``, times signs.

        Raises
        ------
        InputError or RunError
            If there is none.
        """
        values = signs * self.of(theta)[source]
        found = theta.copy()
        found[self._free] = values[: self.n_free]
        if (source[self.n_free :] == np.arange(self.n_free, len(source))).all():
            return found
        flat = self.model.param_constrain(found)
        flat[self._bound] = values[self.n_free :]
        given = {name: flat[columns] for name, columns in self._own.columns.items()}
        return self.model.param_unconstrain_json(orjson.dumps(given, option=orjson.OPT_SERIALIZE_NUMPY))


@dataclass(frozen=True)
class Exchange:
    """A map of parameters that leaves the posterior unchanged."""

    source: Places
    """Shape (n,): the coordinate that each one receives."""
    signs: FloatArray
    """Shape (n,): 1, or -1 for coordinates that change their sign."""

    def __call__(self, coordinates: Coordinates, theta: FloatArray) -> FloatArray:
        """Return the image of an unconstrained point, shape (dim,)."""
        return coordinates.moved(theta, self.source, self.signs)


class _Option(NamedTuple):
    """How one parameter may receive its values: the root mean square difference in sds that remains, and the map."""

    cost: float
    source: Places
    signs: FloatArray


@dataclass(frozen=True)
class Pair:
    """Coordinates of two modes, shape (n,), and the sds about them."""

    one: FloatArray
    other: FloatArray
    sd: FloatArray


class Proof:
    """Test whether the posterior is unchanged by maps.

    Parameters
    ----------
    points : sequence of ndarray, shape (dim,)
        Draws at which its log density must be unchanged.
    """

    def __init__(self, coordinates: Coordinates, points: Sequence[FloatArray]) -> None:
        self._coordinates = coordinates
        self._points = points

    @cached_property
    def _values(self) -> list[float]:
        """Return the log densities at the points, computed once some map is to be tested."""
        return [value for value, _ in self._coordinates.model.log_densities(self._points)]

    def __call__(self, exchange: Exchange) -> bool:
        """Return whether a map leaves the posterior unchanged."""
        try:
            images = [exchange(self._coordinates, theta) for theta in self._points]
        except (InputError, RunError):
            return False
        # One that fails usually fails at the first point.
        for some in (slice(1), slice(1, None)):
            found = [value for value, _ in self._coordinates.model.log_densities(images[some])]
            pairs = zip(self._values[some], found, strict=True)
            if not all(abs(there - here) <= _EQUAL + _ROUNDING * abs(here) for here, there in pairs):
                return False
        return True


def find_exchange(coordinates: Coordinates, pair: Pair, is_unchanged: Proof) -> Exchange | None:
    """Return a map from one mode to another that leaves the posterior unchanged; None if none is found."""
    tried = (exchange for _, exchange in _candidates(coordinates, pair)[:_TRIED])
    return next(filter(is_unchanged, tried), None)


def _candidates(coordinates: Coordinates, pair: Pair) -> list[tuple[float, Exchange]]:
    """Return maps that bring one mode to the other, the most precise first, with what remains."""
    found: dict[bytes, tuple[float, Exchange]] = {}
    for order in _orders(coordinates, pair):
        for cost, exchange in _with_order(coordinates, pair, order):
            key = exchange.source.tobytes() + exchange.signs.tobytes()
            if key not in found or cost < found[key][0]:
                found[key] = (cost, exchange)
    return sorted(found.values(), key=lambda one: one[0])


def _orders(coordinates: Coordinates, pair: Pair) -> list[tuple[int, ...]]:
    """Return permutations of elements that some parameter shows, and the empty one."""
    found: dict[tuple[int, ...], None] = {(): None}
    for places in coordinates.places.values():
        for axis, side in enumerate(places.shape):
            if 1 < side <= _FEW:
                one, other, sd = (
                    np.moveaxis(values[places], axis, 0).reshape(side, -1) for values in (pair.one, pair.other, pair.sd)
                )
                distance = np.square((other[:, np.newaxis] - one) / sd[:, np.newaxis]).sum(axis=2)
                _, order = scipy.optimize.linear_sum_assignment(distance)
                found[tuple(order.tolist())] = None
    return [one for one in found if one != tuple(range(len(one))) or not one]


def _with_order(coordinates: Coordinates, pair: Pair, order: Sequence[int]) -> Iterator[tuple[float, Exchange]]:
    """Yield maps in which elements of parameters have this order, or stay in place."""
    classes: dict[tuple[tuple[int, ...], bool], list[str]] = {}
    for name, places in coordinates.places.items():
        classes.setdefault((places.shape, coordinates.is_free(name)), []).append(name)
    choices: list[list[tuple[Places, _Option]]] = []
    for (_, free), names in classes.items():
        own = [coordinates.places[name] for name in names]
        options = [[_options(pair, one, given, order, free=free) for given in own] for one in own]
        costs = np.array([[each[0].cost for each in row] for row in options]) + _DEAR * (1 - np.eye(len(names)))
        for row, column in zip(*scipy.optimize.linear_sum_assignment(costs), strict=True):
            choices.append([(own[row].ravel(), one) for one in _chosen(options[row][column], own[row])])
    # Of what is nearly 0 at both modes, the sign is uncertain.
    for chosen in itertools.islice(itertools.product(*choices), _TRIED):
        n = len(pair.one)
        source, signs = np.arange(n), np.ones(n)
        for places, option in chosen:
            source[places], signs[places] = option.source, option.signs
        if (np.abs(signs * pair.one[source] - pair.one) > _MOVED * pair.sd).any():
            yield sum(option.cost for _, option in chosen), Exchange(source, signs)


def _chosen(options: Sequence[_Option], own: Places) -> Sequence[_Option]:
    """Return the ways to take: all that are alike, or else the best one, if it is much better than to stay."""
    if alike := [one for one in options if one.cost <= _ALIKE]:
        return alike
    stay = next((one for one in options if (one.source == own.ravel()).all() and (one.signs > 0).all()), None)
    return options[:1] if stay is None or options[0].cost < _LEFT * stay.cost else [stay]


def _options(pair: Pair, own: Places, given: Places, order: Sequence[int], *, free: bool) -> list[_Option]:
    """Return ways in which a parameter can receive the values of another of its shape, or its own, the best first."""
    ways = [given]
    ways += [np.take(given, order, axis) for axis, side in enumerate(given.shape) if side == len(order)]
    there, sd, found = pair.other[own].ravel(), pair.sd[own].ravel(), []
    for way in ways:
        source = way.ravel()
        here = pair.one[source]
        for signs in _signs(here, there, own.shape) if free else [np.ones(len(source))]:
            cost = float(np.sqrt(np.mean(np.square((there - signs * here) / sd))))
            found.append(_Option(cost, source, signs))
    return sorted(found, key=lambda one: one.cost)


def _signs(here: FloatArray, there: FloatArray, shape: tuple[int, ...]) -> Iterator[FloatArray]:
    """Yield signs of elements: all the same, or the same in all places with one index of a dimension."""
    yield np.ones(len(here))
    yield -np.ones(len(here))
    for axis, side in enumerate(shape):
        if 1 < side <= _FEW:
            others = tuple(k for k in range(len(shape)) if k != axis)
            alike = (here * there).reshape(shape).sum(axis=others, keepdims=True)
            signs = np.broadcast_to(np.where(alike < 0, -1.0, 1.0), shape).ravel()
            if 0 < (signs < 0).sum() < len(signs):
                yield signs
