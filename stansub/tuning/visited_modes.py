"""Modes from which draws are: their shares, and which of them are copies of each other.

Labels of mixtures switch, or signs: the posterior then has several modes of which each tells the same. Draws that jump
between them agree by R-hat, and the means of single parameters mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stansub.mode_findings import Restriction, VisitedModes
from stansub.target.factors import Density
from stansub.target.laplace import Mode
from stansub.tuning.exchanges import Coordinates, Exchange, Pair, Places, Proof, find_exchange
from stansub.tuning.surrogates.sampler_runs import spread
from stansub.types import FloatArray

# Draws of each chain that are assigned to modes, draws whose coordinates are computed, and draws at which exchanges are
# proved.
_ASSIGNED, _MEASURED, _PROVED = 500, 200, 3
# Share of the draws from which a mode counts.
_SHARE = 1e-3
# Distance of two chains in sds within chains from which they are about two places.
_APART = 6.0
# Distance of modes in sds from which a restriction to one of them does not cut through it.
_CLEAR = 8.0
# Kinds of restriction that come first.
_FIRST = {"ordered": 0, "positive_ordered": 1}
# Number of parameters named with their values at each mode.
_NAMED = 2


class Centre(NamedTuple):
    """Normal distribution about a mode."""

    position: FloatArray
    """Shape (dim,)."""
    factor: FloatArray
    """Shape (dim,) or (dim, dim): sds, or the lower triangular factor of the covariance."""

    @classmethod
    def of(cls, mode: Mode) -> Centre:
        """Return the Laplace approximation at a mode."""
        return cls(mode.position, mode.cholesky)

    def log_density(self, points: FloatArray) -> FloatArray:
        """Return the log density at points, shape (n, dim), up to a constant that all centres share."""
        away = points - self.position
        if self.factor.ndim == 1:
            return np.asarray(-0.5 * np.square(away / self.factor).sum(axis=1) - np.log(self.factor).sum())
        standard = np.linalg.solve(self.factor, away.T)
        return np.asarray(-0.5 * np.square(standard).sum(axis=0) - np.log(np.diag(self.factor)).sum())


def visited_by_chains(model: Density, draws: Sequence[FloatArray]) -> VisitedModes | None:
    """Return what shows that chains stay at copies of each other; None if nothing does.

    Where chains stay may be no modes, but an exchange of parameters that maps one place to another, and leaves the
    posterior unchanged, shows several.

    Parameters
    ----------
    draws : sequence of ndarray, shape (n, dim)
        Unconstrained draws of each chain.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        sd = np.sqrt(np.mean([one.var(axis=0) for one in draws], axis=0))
    if not np.isfinite(sd).all():  # draws that run away
        return None
    centres: list[Centre] = []
    for one in draws:
        mean = one.mean(axis=0)
        if not any((np.abs(mean - other.position) < _APART * sd).all() for other in centres):
            centres.append(Centre(mean, sd))
    if len(centres) < 2 or not sd.all():
        return None
    found = _Analysis(Coordinates(model), centres, [one[:: max(1, len(one) // _ASSIGNED)] for one in draws])
    changes = found.permuted(), found.becomes(), found.restrictions()
    return VisitedModes([], [], 0, len(draws), {}, *changes) if changes[0] or changes[1] else None


def visited_modes(model: Density, centres: Sequence[Centre], draws: Sequence[FloatArray]) -> VisitedModes | None:
    """Return the modes from which draws are; None if it is one.

    Parameters
    ----------
    model : Density
        The whole log density.
    centres : sequence of Centre
        Modes of the posterior.
    draws : sequence of ndarray, shape (n, dim)
        Unconstrained draws of each chain.
    """
    thinned = [one[:: max(1, len(one) // _ASSIGNED)] for one in draws]
    nearest = [np.argmax([centre.log_density(one) for centre in centres], axis=0) for one in thinned]
    labels, cloud = np.concatenate(nearest), np.concatenate(thinned)
    counts = np.bincount(labels, minlength=len(centres))
    kept = [int(k) for k in np.argsort(-counts, kind="stable") if counts[k] >= max(_SHARE * len(labels), 1)]
    if len(kept) < 2:
        return None
    found = _Analysis(Coordinates(model), [centres[k] for k in kept], [cloud[labels == k] for k in kept])
    return VisitedModes(
        shares=(counts[kept] / counts[kept].sum()).tolist(),
        copy_of=found.copy_of,
        n_jumping=sum(len(np.unique(one)) > 1 for one in nearest),
        n_chains=len(draws),
        values=found.values(),
        permuted=found.permuted(),
        becomes=found.becomes(),
        restrictions=found.restrictions(),
    )


class Copies(NamedTuple):
    """Which of several modes are copies of each other."""

    copy_of: list[int]
    """For each mode, the first one of which it is a copy."""
    permuted: list[str]
    becomes: dict[str, str]
    """Parameters whose elements change places, and what others become."""


def copies(model: Density, draws: Sequence[FloatArray]) -> Copies:
    """Return which modes are copies of each other, from draws about each, shape (n, dim)."""
    found = _Analysis(Coordinates(model), [Centre(one.mean(axis=0), one.std(axis=0)) for one in draws], draws)
    return Copies(found.copy_of, found.permuted(), found.becomes())


class _Analysis:
    """Exchanges between modes.

    Attributes
    ----------
    copy_of : list of int
        For each mode, the first one of which it is a copy.
    """

    def __init__(self, coordinates: Coordinates, centres: Sequence[Centre], draws: Sequence[FloatArray]) -> None:
        self._coordinates = coordinates
        self._centres = centres
        self._at = [coordinates.of(one.position) for one in centres]
        self._sd = self._sds(draws)
        cloud = np.concatenate(draws)
        proof = Proof(coordinates, list(spread(cloud, _PROVED)))
        self.copy_of: list[int] = []
        self._exchanges: list[tuple[Pair, Exchange]] = []
        for k, here in enumerate(self._at):
            first = k
            for earlier in sorted(set(self.copy_of)):
                pair = Pair(self._at[earlier], here, self._sd)
                if (exchange := find_exchange(coordinates, pair, proof)) is not None:
                    self._exchanges.append((pair, exchange))
                    first = earlier
                    break
            self.copy_of.append(first)

    def _sds(self, draws: Sequence[FloatArray]) -> FloatArray:
        """Return the sds of the coordinates about their modes, shape (n,)."""
        squares, n = 0.0, 0
        for own in draws:
            some = own[:: max(1, len(own) * len(draws) // _MEASURED)]
            values = np.array([self._coordinates.of(theta) for theta in some])
            squares, n = squares + np.square(values - values.mean(axis=0)).sum(axis=0), n + len(some)
        scale = 1 + np.abs(np.array(self._at)).max(axis=0)
        return np.asarray(np.maximum(np.sqrt(squares / n), 1e-6 * scale))

    def values(self) -> dict[str, list[float]]:
        """Return the parameters that differ most between modes that are no copies, with their values there."""
        firsts = sorted(set(self.copy_of))
        if len(firsts) < 2:
            return {}
        at = np.array([self._at[k] for k in firsts])
        there = np.array([self._coordinates.constrained(self._centres[k].position) for k in firsts])
        away = (at.max(axis=0) - at.min(axis=0)) / self._sd
        names = [one for name in self._coordinates.places for one in self._coordinates.names(name)]
        most = [k for k in np.argsort(-away, kind="stable")[:_NAMED] if away[k] > _CLEAR]
        return {names[k]: there[:, k].tolist() for k in most}

    def permuted(self) -> list[str]:
        """Return the parameters whose elements change places."""
        found: dict[str, None] = {}
        for _, exchange in self._exchanges:
            for name, places in self._coordinates.places.items():
                source = exchange.source[places]
                if np.isin(source, places).all() and (source != places).any():
                    found[name] = None
        return list(found)

    def becomes(self) -> dict[str, str]:
        """Return what parameters become that change places with others, or their signs."""
        found: dict[str, str] = {}
        for _, exchange in self._exchanges:
            for name, places in self._coordinates.places.items():
                for one, parts in self._parts(name, places, exchange):
                    if value := self._value(parts, exchange):
                        found.setdefault(one, value)
        return found

    def _parts(self, name: str, places: Places, exchange: Exchange) -> Iterator[tuple[str, Places]]:
        """Yield a parameter, or its elements if only some change their signs."""
        if len(np.unique(exchange.signs[places])) == 1:
            yield name, places.ravel()
        else:
            yield from zip(self._coordinates.names(name), places.reshape(-1, 1), strict=True)

    def _value(self, places: Places, exchange: Exchange) -> str:
        """Return what the coordinates at some places become; empty if they stay."""
        source, sign = exchange.source[places], exchange.signs[places[0]]
        owner = self._coordinates.owner(int(source[0]))
        if sign > 0 and owner == self._coordinates.owner(int(places[0])):
            return ""
        names = self._coordinates.names(owner)
        name = owner if len(source) == len(names) else names[int(source[0] - self._coordinates.places[owner].min())]
        return name if sign > 0 else self._mirrored(name, int(source[0]))

    def _mirrored(self, name: str, place: int) -> str:
        """Return a parameter with another sign on the unconstrained space, as an expression."""
        theta, coordinates = self._centres[0].position, self._coordinates
        here, there = coordinates.of(theta)[place], coordinates.centred(theta, place)
        value, other = (coordinates.constrained(one)[place] for one in (theta, 2 * there - theta))
        if value == here:
            return f"-{name}"
        # Between two bounds the sum is constant, and above one the product of the distances from it.
        twice = 2 * coordinates.constrained(there)[place]
        return f"{twice:.4g} - {name}" if np.isclose(value + other, twice) else f"mirrored {name}"

    def restrictions(self) -> list[Restriction]:
        """Return restrictions that leave one of the copies."""
        return list(dict.fromkeys(filter(None, (self._restriction(*one) for one in self._exchanges))))

    def _restriction(self, pair: Pair, exchange: Exchange) -> Restriction | None:
        """Return the restriction that lies between two modes most clearly; of whole parameters if possible."""
        whole, single = list(self._of_parameters(pair, exchange)), list(self._of_elements(pair, exchange))
        clear = [one for one in whole if one[0] > _CLEAR]
        order = (lambda one: (_FIRST.get(one[1].kind, len(_FIRST)), -one[0])) if clear else (lambda one: -one[0])
        return min(clear or [*whole, *single], key=order, default=(0.0, None))[1]

    def _of_parameters(self, pair: Pair, exchange: Exchange) -> Iterator[tuple[float, Restriction]]:
        """Yield restrictions of whole parameters, with the distance of the modes in sds."""
        coordinates, here = self._coordinates, self._centres[0].position
        own, at = coordinates.constrained(here), coordinates.of(here)
        for name, places in coordinates.places.items():
            source, signs = exchange.source[places], exchange.signs[places]
            if not coordinates.is_free(name) or (signs < 0).all() == (signs > 0).any():
                continue
            value, sd = pair.one[places], pair.sd[places]
            if places.ndim == 1 and (signs > 0).all() and set(source) == set(places) and (source != places).any():
                gap = float(np.min(np.diff(np.sort(value))) / sd.max())
                if (own[places] == at[places]).all():
                    yield gap, Restriction("ordered", (name,))
                elif np.allclose(own[places], np.exp(at[places])):
                    yield gap, Restriction("positive_ordered", (name,))
            elif places.ndim == 0 and source == places and signs < 0:
                yield float(2 * np.abs(value) / sd), Restriction("bound", (name,), self._middle(int(places)))
            elif places.ndim == 0 and source != places and signs > 0:
                low, high = sorted((name, coordinates.owner(int(source))))
                gap = np.abs(value - pair.one[source]) / max(sd, pair.sd[source])
                yield float(gap), Restriction("bounded by", (low, high))

    def _of_elements(self, pair: Pair, exchange: Exchange) -> Iterator[tuple[float, Restriction]]:
        """Yield restrictions of single elements of parameters with several, with the distance of the modes in sds."""
        coordinates = self._coordinates
        names = {
            int(place): one
            for name, places in coordinates.places.items()
            for place, one in zip(places.ravel(), coordinates.names(name), strict=True)
            if places.ndim and coordinates.is_free(name)
        }
        for place in names:
            source, sd = int(exchange.source[place]), pair.sd[place]
            if source == place and exchange.signs[place] < 0:
                gap = 2 * np.abs(pair.one[place]) / sd
                yield float(gap), Restriction("larger", (names[place],), self._middle(place))
            elif source != place and exchange.signs[place] > 0:
                gap = np.abs(pair.one[place] - pair.one[source]) / max(sd, pair.sd[source])
                first, second = sorted((place, source))
                yield float(gap), Restriction("larger", (names[second], names[first]))

    def _middle(self, place: int) -> float:
        """Return the value that a coordinate has with 0 on the unconstrained space."""
        there = self._coordinates.centred(self._centres[0].position, place)
        return float(self._coordinates.constrained(there)[place])
