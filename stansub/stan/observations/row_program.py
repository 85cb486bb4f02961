"""The likelihood of one observation as its own family: arguments, and a program for each variant of the data."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub import _loop
from stansub.stan.observations.branches import continuous
from stansub.stan.observations.containers import added
from stansub.stan.observations.operations import common_limit
from stansub.stan.observations.rowwise import (
    MOST_NESTED,
    Expression,
    Number,
    combine,
    is_kind,
    known,
    pick,
    walk,
    with_parts,
    wrapped,
)
from stansub.stan.observations.short_forms import shorter
from stansub.stan.observations.slopes import Slopes, dense, dots, key_of, none_like, repeated, scaled, spread, stacked
from stansub.target.families import Binomial
from stansub.target.programs import Code, ProgramFamily
from stansub.target.remainders import Family, NoPredictorsError
from stansub.types import Check, FloatArray

# Maxima: arguments of an observation; variants; numbers of all rows of the design; instructions of a variant.
MOST_ARGUMENTS, _MOST_VARIANTS, _MOST_NUMBERS, _MOST_INSTRUCTIONS = 12, 64, 1 << 28, 8192
# Frames of functions that recurse over the parts of an expression, for each operation in a row.
_FRAMES = 5
# Relative rounding of slopes.
_ROUNDING = 1e-12
_PLACES = {name: k for k, name in enumerate(_loop.OPERATIONS)}
# Functions for which a program may use the logarithm of 1 less a number near 1.
_LOSING = [
    _PLACES[name] for name in ("std_normal_lcdf", "log1m_exp", "log_gamma_above", "log_mean_normal", "log1p_exp")
]
# Functions of 1 less a number: the operation of that, and the sign of the constant in it.
_OF_COMPLEMENT = {_PLACES["log1p"]: (_PLACES["product"], -1), _PLACES["log"]: (_PLACES["difference"], 1)}


class Argument(NamedTuple):
    """An argument of all observations, affine in the unconstrained parameters."""

    slopes: Slopes
    """Shape (n, dim) or (1, dim)."""
    offset: FloatArray
    """Shape (n,) or (1,)."""


def tail_rounding(family: Family, *, logits: bool = False) -> Callable[[FloatArray], FloatArray] | None:
    """Return the rounding errors of Stan's log likelihoods of a family, as a function of these; None if negligible.

    With ``logits``, a program of a binomial family may compute probabilities from logits, and round these, as others
    may.
    """
    code = family.code if isinstance(family, ProgramFamily) else None
    tails = code is not None and (np.isin(_LOSING, code.codes[:, 0]).any() or _has_complement(code))
    return _tail_rounding if tails or (logits and isinstance(family, Binomial)) else None


def _has_complement(code: Code) -> bool:
    """Return whether a program takes the logarithm of 1 less a number, such as a probability of several terms."""
    for first, end in pairwise(code.starts.tolist()):
        own, values = code.codes[first:end].tolist(), code.values[first:end]
        for function, operand, _ in own:
            if (sought := _OF_COMPLEMENT.get(function)) is None:
                continue
            (operation, sign), (kind, a, _) = sought, own[operand]
            if kind == operation and own[a][0] == _PLACES["constant"] and sign * values[a] > 0:
                return True
    return False


def _tail_rounding(log_lik: FloatArray) -> FloatArray:
    """Return Stan's error in logs of small probabilities, computed from 1 less one near 1; at most a tenth."""
    return np.asarray(np.minimum(8 * np.finfo(float).eps * np.exp(np.minimum(-log_lik, 100.0)), 0.1))


@contextmanager
def _of_any_depth() -> Iterator[None]:
    """Let functions recurse over all operations in a row that a value may be the result of."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _FRAMES * MOST_NESTED))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@_of_any_depth()
def in_program(term: Expression, n: int, *, check: Check = lambda: None) -> tuple[ProgramFamily, list[Argument]]:
    """Return the program of an observation and the arguments of n, from the log likelihood of one; not yet proved.

    Parameters
    ----------
    check : callable
        Called often; raises an error if it is time to stop.

    Raises
    ------
    NoPredictorsError
        If a limit is exceeded.
    """
    patterns, which = _patterns(term, n)
    if len(patterns) > _MOST_VARIANTS:
        patterns, which = _patterns(term, n, limits=False)
    if len(patterns) > _MOST_VARIANTS:
        patterns, which = _patterns(term := _in_one_form(term, _shared(term), {}), n, limits=False)
    terms = []
    for k in range(len(patterns)):
        check()
        terms.append(shorter(continuous(_resolved(term, which == k, {}))))
    try:
        arguments = _Arguments.of(terms, n, check)
    except NoPredictorsError:
        # Kinds of observations may read parameters of their own in the same way.
        merged = pick(terms, which)
        if len(_patterns(merged, n)[0]) < len(terms):
            return in_program(merged, n, check=check)
        arguments = _Arguments.of_parameters(terms, n)
    variants = [_Variant.of(one, which == k, arguments) for k, one in enumerate(terms)]
    if not arguments.slopes:
        raise NoPredictorsError("the likelihood does not depend on parameters")
    width = 1 + max(len(one.columns) for one in variants)
    data = np.zeros((width, n))
    data[0] = which
    for k, one in enumerate(variants):
        for row, column in enumerate(one.columns, 1):
            data[row, which == k] = column[which == k] if len(column) == n else column
    starts = np.cumsum([0, *(len(one.codes) for one in variants)]).astype(np.int32)
    code = Code(
        starts,
        np.array([code for one in variants for code in one.codes], np.int32),
        np.array([value for one in variants for value in one.constants], np.float64),
    )
    family = ProgramFamily(code, len(arguments.slopes), data)
    return family, list(map(Argument, arguments.slopes, arguments.offsets))


def in_sequence(parts: Sequence[tuple[ProgramFamily, list[Argument]]]) -> tuple[ProgramFamily, list[Argument]]:
    """Return the program and the arguments of the observations of several sums, one sum after the other."""
    if len(parts) == 1:
        return parts[0]
    families, arguments = zip(*parts, strict=True)
    ns = [family.data.shape[1] for family in families]
    data, variants, n_codes = np.zeros((max(len(family.data) for family in families), sum(ns))), 0, 0
    starts = []
    for family, first in zip(families, np.cumsum([0, *ns]), strict=False):
        own = data[: len(family.data), first : first + family.data.shape[1]]
        own[:] = family.data
        own[0] += variants
        starts.append(family.code.starts[:-1] + n_codes)
        variants, n_codes = variants + len(family.code.starts) - 1, n_codes + len(family.code.codes)
    code = Code(
        np.concatenate([*starts, [n_codes]]).astype(np.int32),
        np.concatenate([family.code.codes for family in families]),
        np.concatenate([family.code.values for family in families]),
    )
    none = Argument(none_like(arguments[0][0].slopes), np.zeros(1))
    joined = [_joined(own, ns) for own in zip_longest(*arguments, fillvalue=none)]
    return ProgramFamily(code, len(joined), data), joined


def _joined(several: Sequence[Argument], ns: Sequence[int]) -> Argument:
    """Return an argument of each of several sums, with so many observations, as one."""
    if len({(key_of(one.slopes), one.offset.tobytes()) for one in several}) == 1 and len(several[0].offset) == 1:
        return several[0]
    slopes = [repeated(one.slopes, n) for one, n in zip(several, ns, strict=True)]
    offset = np.concatenate([np.broadcast_to(one.offset, n) for one, n in zip(several, ns, strict=True)])
    return Argument(stacked(slopes), offset)


def _patterns(term: Number, n: int, *, limits: bool = True) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return which masks hold for each kind of observations, and the kind of each observation.

    With ``limits``, observations differ in kind if some of their values are infinite.
    """
    everything = walk([term])
    masks = [one.values for one in everything if one.kind == "select" and one.values is not None]
    masks += [mask for one in everything if limits for mask in _limits(one, n)]
    if not masks:
        return np.zeros((1, 0), bool), np.zeros(n, np.int64)
    different = {mask.tobytes(): mask for mask in masks}
    kinds = np.zeros(n, np.int64)
    for mask in different.values():
        _, kinds = np.unique(2 * kinds + mask, return_inverse=True)
    _, first = np.unique(kinds, return_index=True)
    return np.stack(list(different.values()), axis=1)[first], kinds


def _limits(one: Expression, n: int) -> list[NDArray[np.bool_]]:
    """Return for which observations a known or affine value is infinite, such as the logarithm of a dose of 0."""
    if one.kind not in ("data", "affine") or one.values is None or len(one.values) < n:
        return []
    return [mask for mask in (one.values == np.inf, one.values == -np.inf) if mask.any()]


def _shared(term: Expression) -> set[int]:
    """Return the ids of selections that are parts of several expressions, as the states of a recursion are."""
    uses = Counter(id(part) for one in walk([term]) for part in one.parts if is_kind(part, "select"))
    return {one for one, n_uses in uses.items() if n_uses > 1}


def _in_one_form(one: Number, shared: set[int], done: dict[int, Number]) -> Number:
    """Return an expression without selections: what they select from is multiplied by data of 0 and 1, and added."""
    if not isinstance(one, Expression):
        return one
    if not one.parts:
        # Data that are not set for some observations are not read there, but they would be multiplied by 0.
        return one if (value := known(one)) is None else wrapped(np.where(np.isnan(value), 0.0, value))
    if id(one) not in done:
        if one.kind == "select" and one.values is not None:
            leaves: dict[int, tuple[Number, NDArray[np.bool_]]] = {}
            for part, where in zip(one.parts, (one.values, ~one.values), strict=True):
                for leaf, mask in _leaves(part, where, shared):
                    leaves[id(leaf)] = leaf, mask | leaves[id(leaf)][1] if id(leaf) in leaves else mask
            done[id(one)] = added([_masked(_in_one_form(leaf, shared, done), mask) for leaf, mask in leaves.values()])
        else:
            done[id(one)] = with_parts(one, [_in_one_form(part, shared, done) for part in one.parts])
    return done[id(one)]


def _leaves(one: Number, mask: NDArray[np.bool_], shared: set[int]) -> Iterator[tuple[Number, NDArray[np.bool_]]]:
    """Yield what nested selections select from, shared ones as they are, with the observations for which they do."""
    if not is_kind(one, "select") or id(one) in shared:
        yield one, mask
        return
    yield from _leaves(one.parts[0], mask & one.values, shared)
    yield from _leaves(one.parts[1], mask & ~one.values, shared)


def _masked(one: Number, mask: NDArray[np.bool_]) -> Number:
    """Return a number where a mask holds, and 0 elsewhere and before it is set."""
    if (value := known(one)) is not None:
        return wrapped(np.where(mask & ~np.isnan(value), value, 0.0))
    return one if mask.all() else combine("product", wrapped(mask.astype(np.float64)), one)


class _Share(NamedTuple):
    """An argument and its factor in an affine expression: one for all observations, or one for each."""

    argument: int
    factor: FloatArray


@dataclass
class _Arguments:
    """The arguments of all variants: affine expressions from which the others are composed."""

    n: int
    slopes: list[Slopes] = field(default_factory=list)
    offsets: list[FloatArray] = field(default_factory=list)
    _known: dict[bytes, list[_Share]] = field(default_factory=dict)

    @classmethod
    def of(cls, terms: Sequence[Number], n: int, check: Check) -> _Arguments:
        """Return the arguments of some expressions; those of fewer parameters, and of all observations, come first."""
        found = cls(n)
        leaves = {key_of(_slopes(one)): one for one in walk(terms) if one.kind == "affine"}

        def rank(one: Expression) -> tuple[float, float]:
            nonzero = _slopes(one) != 0
            return float((nonzero.sum(axis=0) > 0).sum()), -float((nonzero.sum(axis=1) > 0).mean())

        for one in sorted(leaves.values(), key=rank):
            check()
            found.add(one)
        return found

    @classmethod
    def of_parameters(cls, terms: Sequence[Number], n: int) -> _Arguments:
        """Return as arguments the parameters that expressions read: many sums may read few of them."""
        leaves = [one for one in walk(terms) if one.kind == "affine"]
        columns = np.unique(np.concatenate([np.flatnonzero(abs(_slopes(one)).sum(axis=0)) for one in leaves]))
        if len(columns) > MOST_ARGUMENTS:
            raise NoPredictorsError(f"an observation has more than {MOST_ARGUMENTS} arguments")
        units = np.zeros((len(columns), 1, _slopes(leaves[0]).shape[1]))
        units[np.arange(len(columns)), 0, columns] = 1.0
        found = cls(n, list(units), [np.zeros(1) for _ in columns])
        for one in leaves:
            slopes = dense(_slopes(one)[:, columns])
            found._known[key_of(_slopes(one))] = [_Share(k, own) for k, own in enumerate(slopes.T) if own.any()]
        return found

    def add(self, one: Expression) -> None:
        """Record an affine expression: as a sum of multiples of the arguments so far, or as another argument."""
        slopes = _slopes(one)
        shares = self._shares(slopes)
        if shares is None:
            if len(self.slopes) == MOST_ARGUMENTS:
                raise NoPredictorsError(f"an observation has more than {MOST_ARGUMENTS} arguments")
            shares = [_Share(len(self.slopes), np.ones(1))]
            self.slopes.append(slopes)
            # Where an observation takes another branch, data may be undefined, such as the logarithm of 0.
            self.offsets.append(np.nan_to_num(np.asarray(one.values, np.float64), posinf=0.0, neginf=0.0))
            if sum(each.size for each in self.slopes) > _MOST_NUMBERS:
                raise NoPredictorsError("the rows of the arguments take too much memory")
        self._known[key_of(slopes)] = shares

    def shares(self, one: Expression) -> tuple[list[_Share], FloatArray]:
        """Return the shares of arguments in an affine expression, and the constant."""
        assert one.values is not None
        shares = self._known[key_of(_slopes(one))]
        return shares, one.values - sum(each.factor * self.offsets[each.argument] for each in shares)

    def _shares(self, slopes: Slopes) -> list[_Share] | None:
        if not self.slopes:
            return None
        # Few rows show most that is no sum.
        rows = np.random.default_rng(0).integers(0, self.n, 64)
        *few, own = (each[rows % each.shape[0]] for each in (*self.slopes, slopes))
        allowed = _ROUNDING * (abs(slopes).max() + 1e-300)
        for k, (z, some) in enumerate(zip(self.slopes, few, strict=True)):
            if not _is_sum(own, [(_ratios(own, some), some)], allowed):
                continue
            factor = _ratios(slopes, z)
            if _is_sum(slopes, [(factor, z)], allowed):
                factor = factor[:1] if (factor == factor[0]).all() else factor
                return [_Share(k, _rounded(factor))]
        flat = sp.csr_array(sp.vstack([sp.coo_array(one).reshape((1, -1)) for one in (*few, own)]))
        *given, sought = flat[:, np.unique(flat.indices)].toarray()
        factors, *_ = np.linalg.lstsq(np.stack(given, axis=1), sought, rcond=None)
        factors = _rounded(factors)
        if not all(
            _is_sum(of_rows, [(np.array([factor]), z) for factor, z in zip(factors, parts, strict=True)], allowed)
            for of_rows, parts in ((own, few), (slopes, self.slopes))
        ):
            return None
        return [_Share(k, np.array([factor])) for k, factor in enumerate(factors) if factor]


def _slopes(one: Expression) -> Slopes:
    assert one.slopes is not None
    return one.slopes


def _rounded(factors: NDArray[np.floating[Any]]) -> FloatArray:
    """Return factors with those that are integers up to rounding replaced by them."""
    return np.asarray(np.where(np.abs(factors - np.round(factors)) < _ROUNDING, np.round(factors), factors))


def _ratios(slopes: Slopes, z: Slopes) -> FloatArray:
    """Return the factor of other slopes that comes nearest to some, for each observation."""
    return np.asarray(dots(slopes, z) / np.maximum(dots(z, z), np.finfo(float).tiny))


def _is_sum(slopes: Slopes, parts: Sequence[tuple[FloatArray, Slopes]], allowed: float) -> bool:
    """Return whether slopes are a sum of others times factors, common to all observations or one for each."""
    rest, n = slopes, max(slopes.shape[0], *(max(len(factor), z.shape[0]) for factor, z in parts))
    rest = spread(slopes, n)
    for factor, z in parts:
        rest = rest - scaled(spread(z, n), factor)
    return bool(abs(rest).max() <= allowed)


def _resolved(one: Number, rows: NDArray[np.bool_], done: dict[int, Number]) -> Number:
    """Return an expression without selections, whose masks are equal for all of some observations.

    Values that are infinite for all of them are constants.
    """
    if not isinstance(one, Expression):
        return one
    if not one.parts:
        if one.values is None:
            return one
        limit = common_limit(one.values[rows] if len(one.values) == len(rows) else one.values)
        return one if limit is None else limit
    if id(one) not in done:
        if one.kind == "select" and one.values is not None:
            done[id(one)] = _resolved(one.parts[0 if one.values[rows][0] else 1], rows, done)
        else:
            done[id(one)] = with_parts(one, [_resolved(part, rows, done) for part in one.parts])
    return done[id(one)]


@dataclass
class _Variant:
    """A program for some observations: its instructions, constants and data."""

    rows: NDArray[np.bool_]
    arguments: _Arguments
    codes: list[tuple[int, int, int]] = field(default_factory=list)
    constants: list[float] = field(default_factory=list)
    columns: list[NDArray[Any]] = field(default_factory=list)
    _seen: dict[Any, int] = field(default_factory=dict)
    _kept: list[Expression] = field(default_factory=list)

    @classmethod
    def of(cls, term: Number, rows: NDArray[np.bool_], arguments: _Arguments) -> _Variant:
        """Return the program of a log likelihood for the observations of a mask."""
        found = cls(rows, arguments)
        found.place(term)
        if len(found.codes) > _MOST_INSTRUCTIONS:
            raise NoPredictorsError(f"the likelihood of an observation takes more than {_MOST_INSTRUCTIONS} operations")
        return found

    def place(self, one: Number) -> int:
        """Return the instruction that computes a number, which is added if new."""
        if (value := known(one)) is not None:
            return self._number(np.atleast_1d(np.asarray(value, np.float64)))
        if ("id", id(one)) not in self._seen:
            self._kept.append(one)  # no other value has its id
            self._seen["id", id(one)] = self._new(one)
        return self._seen["id", id(one)]

    def _new(self, one: Expression) -> int:
        if one.kind == "abs":
            operand = self.place(one.parts[0])
            self.columns.append(np.zeros(1))  # of widths, which are set where its kink is smoothed
            return self._code("abs", operand, len(self.columns))
        if one.kind != "affine":
            places = [self.place(part) for part in one.parts]
            return self._code(one.kind, *places)
        shares, rest = self.arguments.shares(one)
        at = self._number(rest) if np.any(rest) else -1
        for argument, factor in sorted(shares, key=lambda share: not share.factor.all() or share.factor[0] < 0):
            own, minus = self._code("argument", argument), bool((factor == -1).all())
            if (not minus and not (factor == 1).all()) or (minus and at < 0):
                own = self._code("product", self._number(factor), own)
            at = own if at < 0 else self._code("difference" if minus else "sum", at, own)
        return at

    def _number(self, values: FloatArray) -> int:
        own = values[self.rows] if len(values) > 1 else values
        if (own == own[0]).all():
            return self._code("constant", value=float(own[0]))
        key = ("column", own.tobytes())
        if key not in self._seen:
            self.columns.append(values)
            self._seen[key] = len(self.columns)
        return self._code("data", self._seen[key])

    def _code(self, kind: str, a: int = 0, b: int = 0, value: float = 0.0) -> int:
        key = (kind, a, b, value)
        if key not in self._seen:
            self._seen[key] = len(self.codes)
            self.codes.append((_PLACES[kind], a, b))
            self.constants.append(value)
        return self._seen[key]
