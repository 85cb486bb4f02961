"""Metropolis-Hastings across dimensions by paired moves (Green 1995), with decisions from subsets of the data.

A position has the dimension of the largest model. A coordinate outside the current model is exactly 0, or marked by an
indicator; only the moves interpret the stored vector. A move m, picked at x with probability j_m(x), draws auxiliary
variables u with density q_m(u | x) and goes to (x', u') = h_m(x, u). The paired move n goes from (x', u') back to (x,
u). The log acceptance ratio is that of the posterior plus (Green 1995, equation 8)

    log j_n(x') + log q_n(u' | x') - log j_m(x) - log q_m(u | x) + log |det dh_m(x, u)|.

An error in a pair gives wrong draws that look right. Each chain therefore checks the first tries of every move: the
paired move must lead back and invert the Jacobian. `ReversibleJump.check` also compares it with finite differences.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stansub._loop import Decider, Table
from stansub.codec import GIVEN
from stansub.errors import InputError, RunError
from stansub.kernels.base import Info, Kernel, Records, Stat, State, step_by_step
from stansub.kernels.metropolis import MetropolisHastings
from stansub.kernels.proposals import Adapter, BuiltIn, NoAdapter
from stansub.kernels.recipes import Context, Leaf, Leaves
from stansub.types import FloatArray

# From a position to the indices of the continuous coordinates of its model.
Active = Callable[[FloatArray], NDArray[np.integer[Any]]]

# Tries of each move whose reverse move a chain checks.
_CHECKED = 20
# Relative error of a round trip; absolute error of a log determinant by central differences, per dimension.
_ROUNDING, _DIFFERENCES = 1e-6, 1e-5


class Auxiliary(NamedTuple):
    """Auxiliary variables that a move draws.

    Attributes
    ----------
    values : ndarray, shape (n,)
        Continuous variables.
    choice : hashable
        Discrete variables, such as the number of a coordinate; compared by ``==``.
    """

    values: FloatArray
    choice: Hashable = None


class Moved(NamedTuple):
    """Result of a move.

    Attributes
    ----------
    proposed : ndarray, shape (dim,)
    back : Auxiliary
        What the paired move must draw there to lead back.
    log_jacobian : float
        ``log |det|`` of the derivative of (continuous coordinates of the proposed model, ``back.values``) with respect
        to (those of the current model, ``values`` drawn).
    """

    proposed: FloatArray
    back: Auxiliary
    log_jacobian: float = 0.0


class Move(Protocol):
    """One of two paired moves, or a move that is its own reverse. Only `transform` may write to positions.

    A move with a method ``adapter(dim)`` adapts in warmup as proposals do (see `stansub.kernels.proposals.Adaptive`).
    The adapter sees the steps in which its move was tried, and returns moves.
    """

    def weight(self, position: FloatArray) -> float:
        """Return the weight of the move at a position; moves are picked in proportion to it, and never at 0."""

    def draw(self, rng: np.random.Generator, position: FloatArray) -> Auxiliary:
        """Draw auxiliary variables."""

    def log_density(self, position: FloatArray, drawn: Auxiliary) -> float:
        """Return the log density of these draws, with the probability of discrete ones; -inf if impossible."""

    def transform(self, position: FloatArray, drawn: Auxiliary) -> Moved:
        """Return where the move leads; the position is a copy that may be modified and returned."""


@dataclass(frozen=True, kw_only=True)
class Symmetric:
    """Move x' = x + s that is its own reverse: s is as probable at x as -s at x'.

    Attributes
    ----------
    step : callable
        Draws s from (generator, position); 0 for coordinates outside the model.
    weight_of : callable, optional
        From the position to its weight; 1 by default.
    """

    step: Callable[[np.random.Generator, FloatArray], FloatArray]
    weight_of: Callable[[FloatArray], float] | None = None

    def weight(self, position: FloatArray) -> float:
        return 1.0 if self.weight_of is None else self.weight_of(position)

    def draw(self, rng: np.random.Generator, position: FloatArray) -> Auxiliary:
        return Auxiliary(np.asarray(self.step(rng, position), dtype=np.float64))

    def log_density(self, position: FloatArray, drawn: Auxiliary) -> float:
        return 0.0  # the same in both directions

    def transform(self, position: FloatArray, drawn: Auxiliary) -> Moved:
        return Moved(position + drawn.values, Auxiliary(-drawn.values))


class Jump:
    """Two paired moves, ``Jump(birth=..., death=...)``, or one that is its own reverse, ``Jump(update=...)``.

    Raises
    ------
    InputError
        If there are not one or two moves.
    """

    def __init__(self, **moves: Move) -> None:
        if len(moves) not in (1, 2):
            raise InputError(f"a Jump takes one named move, or two paired ones, not {len(moves)}")
        for name, move in moves.items():
            missing = [one for one in ("weight", "draw", "log_density", "transform") if not hasattr(move, one)]
            if missing or isinstance(move, type):
                raise InputError(
                    f"the move {name} must be an object with the methods of stansub.kernels.jumps.Move; "
                    f"{'missing: ' + ', '.join(missing) if missing else 'this is a class'}"
                )
        self.moves = dict(moves)


class _Try(NamedTuple):
    """A move and where it leads."""

    number: int
    drawn: Auxiliary
    moved: Moved
    log_q_ratio: float


@dataclass(frozen=True)
class Moves(BuiltIn):
    """Proposal that picks one of several moves at random."""

    names: tuple[str, ...]
    moves: tuple[Move, ...] = field(metadata=GIVEN)
    paired: tuple[int, ...]
    """The index of the reverse of each move."""

    def __call__(self, rng: np.random.Generator, position: FloatArray) -> tuple[FloatArray, float]:
        tried = self.tried(rng, _read_only(position))
        return tried.moved.proposed, tried.log_q_ratio

    def tried(self, rng: np.random.Generator, position: FloatArray) -> _Try:
        """Pick a move, draw its variables and apply it; raises the errors of `way`."""
        picked = self.probabilities(position)
        number = int(np.searchsorted(np.cumsum(picked), rng.random() * picked.sum(), side="right"))
        return self.way(position, number, self.moves[number].draw(rng, position))

    def way(self, position: FloatArray, number: int, drawn: Auxiliary) -> _Try:
        """Return where a move leads with the given auxiliary variables.

        Raises
        ------
        RunError
            If the move returns invalid values.
        """
        log_q = self._number(number, "log_density of its own draws", self.moves[number].log_density(position, drawn))
        moved = self._transformed(number, position, drawn)
        proposed = _read_only(moved.proposed)
        if not np.isfinite(proposed).all():
            return _Try(number, drawn, moved, -np.inf)
        other = self.paired[number]
        picked, picked_back = self.probabilities(position)[number], self.probabilities(proposed)[other]
        if not picked_back:
            return _Try(number, drawn, moved, -np.inf)
        log_back = float(self.moves[other].log_density(proposed, moved.back))
        if not log_back < np.inf:
            raise RunError(f"the move {self.names[other]}: log_density of the reverse move is {log_back}")
        log_q_ratio = np.log(picked_back / picked) + log_back - log_q
        return _Try(number, drawn, moved, float(log_q_ratio + moved.log_jacobian))

    def check_back(self, position: FloatArray, tried: _Try) -> None:
        """Check that the paired move leads back, if it can.

        Raises
        ------
        RunError
            If it leads elsewhere, draws other variables, or its Jacobian is not the inverse.
        """
        number, drawn, moved, _ = tried
        other = self.paired[number]
        pair = f"the moves {self.names[number]} and {self.names[other]} are not a pair"
        if number == other:
            pair = f"the move {self.names[number]} is not its own reverse"
        returned = self._transformed(other, moved.proposed, moved.back)
        if not _close(returned.proposed, position):
            worst = int(np.argmax(np.abs(returned.proposed - position)))
            raise RunError(
                f"{pair}: the move and its reverse take parameter {worst + 1} from {position[worst]:.6g} to "
                f"{moved.proposed[worst]:.6g} to {returned.proposed[worst]:.6g}"
            )
        if returned.back.choice != drawn.choice or not _close(returned.back.values, drawn.values):
            raise RunError(f"{pair}: the reverse of the reverse draws {returned.back}, not {drawn}")
        if abs(moved.log_jacobian + returned.log_jacobian) > _ROUNDING * (1 + abs(moved.log_jacobian)):
            raise RunError(
                f"{pair}: log |det| of the Jacobian is {moved.log_jacobian:.6g} for the move and "
                f"{returned.log_jacobian:.6g} for its reverse; the second must be the negative of the first"
            )

    def check_jacobian(self, position: FloatArray, tried: _Try, active: Active) -> None:
        """Compare the log determinant with central differences.

        Raises
        ------
        RunError
            If they differ, or the dimensions of the two models do not match.
        """
        number, drawn, moved, _ = tried
        here, there = active(position), active(moved.proposed)
        start = np.concatenate([position[here], drawn.values])
        if len(start) != len(there) + len(moved.back.values):
            raise RunError(
                f"the move {self.names[number]} goes from {len(here)} coordinates and {len(drawn.values)} draws to "
                f"{len(there)} and {len(moved.back.values)}: the sums must be the same"
            )

        def ends(point: FloatArray) -> FloatArray:
            changed = position.copy()
            changed[here] = point[: len(here)]
            made = self._transformed(number, changed, Auxiliary(point[len(here) :], drawn.choice))
            return np.concatenate([made.proposed[there], made.back.values])

        widths = 1e-5 * (1 + np.abs(start))
        shifts = np.diag(widths)
        columns = [(ends(start + one) - ends(start - one)) / (2 * one.sum()) for one in shifts]
        found = np.linalg.slogdet(np.array(columns))[1] if columns else 0.0
        if not abs(found - moved.log_jacobian) <= _DIFFERENCES * (1 + len(start)):
            raise RunError(
                f"the move {self.names[number]} says that log |det| of its Jacobian is {moved.log_jacobian:.6g}; by "
                f"finite differences it is {found:.6g}"
            )

    def adapter(self, dim: int) -> Adapter:
        """Return an adapter of the moves that adapt in warmup."""
        learning = {number: move.adapter(dim) for number, move in enumerate(self.moves) if hasattr(move, "adapter")}
        return MovesAdapter(self, learning) if learning else NoAdapter(self)

    def probabilities(self, position: FloatArray) -> FloatArray:
        """Return the probability of each move; raise RunError if the weights are invalid."""
        weights = np.array([move.weight(position) for move in self.moves], dtype=np.float64)
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
            found = ", ".join(f"{name} {weight:g}" for name, weight in zip(self.names, weights, strict=True))
            raise RunError(
                f"the weights of moves must be at least 0 and at least one positive; at {position} they are {found}"
            )
        return np.asarray(weights / weights.sum())

    def _transformed(self, number: int, position: FloatArray, drawn: Auxiliary) -> Moved:
        moved = Moved(*self.moves[number].transform(position.copy(), drawn))
        proposed = np.array(moved.proposed, dtype=np.float64)
        if proposed.shape != position.shape:
            raise RunError(
                f"the move {self.names[number]} must return {position.size} numbers, not an array of shape "
                f"{proposed.shape}"
            )
        return Moved(proposed, moved.back, self._number(number, "log_jacobian", moved.log_jacobian))

    def _number(self, number: int, what: str, value: float) -> float:
        if not np.isfinite(value):
            raise RunError(f"the move {self.names[number]}: {what} is {value}, which must be a finite number")
        return float(value)


@dataclass(eq=False)
class MovesAdapter:
    """Adapters of the moves that adapt, by index; each sees the steps in which its move was tried."""

    _moves: Moves
    _learning: dict[int, Any]

    @property
    def n_evaluated(self) -> int:
        return sum(int(one.n_evaluated) for one in self._learning.values())

    def learn(self, records: Records) -> None:
        for number, adapter in self._learning.items():
            own = records.rows(np.flatnonzero(records["move"] == number))
            if len(own):
                adapter.learn(own)

    def proposal(self) -> Moves:
        return self._with({number: one.proposal() for number, one in self._learning.items()})

    def final(self) -> Moves:
        return self._with({number: one.final() for number, one in self._learning.items()})

    def _with(self, learned: abc.Mapping[int, Move]) -> Moves:
        return replace(self._moves, moves=tuple(learned.get(n, move) for n, move in enumerate(self._moves.moves)))


class JumpKernel(MetropolisHastings):
    """Kernel of one chain; its params are `Moves`.

    Parameters
    ----------
    decider, tables
        See `MetropolisHastings`.
    names : tuple of str
        Names of the moves.
    """

    def __init__(self, decider: Decider, tables: Callable[[float], Table] | None, names: tuple[str, ...]) -> None:
        super().__init__(decider, tables)
        numbered = ", ".join(f"{number} {name}" for number, name in enumerate(names))
        self._move = Stat("move", np.int32, f"Proposed move: {numbered}.")
        self._tries, self._undone = [0] * len(names), [0] * len(names)

    @property
    def stats(self) -> tuple[Stat, ...]:
        """Return the statistics of a decision, and the move it was about."""
        return (self._move, *super().stats)

    def step(self, rng: np.random.Generator, state: State, params: Any, *, audit: bool = False) -> tuple[State, Info]:
        """Pick a move, propose and decide."""
        position = _read_only(state.position)
        tried = params.tried(rng, position)
        if self._tries[tried.number] < _CHECKED:
            self._check(params, position, tried)
        state, info = self.decide(rng, state, tried.moved.proposed, tried.log_q_ratio, audit=audit)
        return state, {**info, self._move.name: tried.number}

    batch = step_by_step

    def _check(self, moves: Moves, position: FloatArray, tried: _Try) -> None:
        number, other = tried.number, moves.paired[tried.number]
        self._tries[number] += 1
        if tried.log_q_ratio > -np.inf:
            self._undone[number] += 1
            moves.check_back(position, tried)
        elif self._tries[number] == _CHECKED and not self._undone[number]:
            raise RunError(
                f"the move {moves.names[number]} is never accepted: {moves.names[other]} cannot reverse any of its "
                f"first {_CHECKED} proposals, because its weight or density is 0 there"
            )


class ReversibleJump:
    """Metropolis-Hastings across dimensions, or within one, by paired moves (Green 1995).

    Parameters
    ----------
    *jumps : Jump
        Moves such as ``Jump(update=...), Jump(birth=..., death=...)``. Each step picks one move, with probability in
        proportion to its weight at the position. The statistic ``move`` records which.

    Raises
    ------
    InputError
        If there is no jump, or two moves share a name.

    Notes
    -----
    The posterior has no single smooth density: stansub searches for no modes, before or after sampling, and uses no
    control variates. Pass `inits`; without them, chains start with all coordinates in the model.
    """

    smooth: ClassVar[bool] = False

    def __init__(self, *jumps: Jump) -> None:
        if not jumps or not all(isinstance(one, Jump) for one in jumps):
            raise InputError("ReversibleJump takes jumps, such as stansub.Jump(birth=..., death=...)")
        names = [name for one in jumps for name in one.moves]
        if len(set(names)) < len(names):
            raise InputError(f"the moves of a ReversibleJump must have different names, not {', '.join(names)}")
        paired: list[int] = []
        for one in jumps:
            paired += [len(paired) + len(one.moves) - 1 - place for place in range(len(one.moves))]
        self.moves = Moves(tuple(names), tuple(move for one in jumps for move in one.moves.values()), tuple(paired))

    def bind(self, context: Context) -> Kernel:
        """Return the kernel of one chain."""
        return JumpKernel(context.decider, context.tables, self.moves.names)

    def leaves(self, names: abc.Sequence[str]) -> Leaves:
        """Return the moves."""
        return Leaf(self.moves, np.arange(len(names)))

    def check(
        self,
        position: FloatArray,
        *,
        rng: np.random.Generator,
        n_steps: int = 200,
        active: Active = np.flatnonzero,
    ) -> None:
        """Check pairs and Jacobians by applying the moves without a target, accepting every move.

        The check cannot tell whether draws have the density that ``log_density`` returns.

        Parameters
        ----------
        position : ndarray, shape (dim,)
            Starting position.
        n_steps : int
            Moves to try.
        active : callable
            From a position to the indices of its model's continuous coordinates. By default those that are not 0.

        Raises
        ------
        RunError
            If two moves are not a pair, or a Jacobian differs from finite differences.
        """
        here = _read_only(np.asarray(position, dtype=np.float64))
        for _ in range(n_steps):
            tried = self.moves.tried(rng, here)
            if tried.log_q_ratio > -np.inf:
                self.moves.check_back(here, tried)
                self.moves.check_jacobian(here, tried, active)
                here = _read_only(tried.moved.proposed)


def _read_only(position: FloatArray) -> FloatArray:
    copy = np.array(position, dtype=np.float64)
    copy.flags.writeable = False
    return copy


def _close(one: FloatArray, other: FloatArray) -> bool:
    return np.shape(one) == np.shape(other) and np.allclose(one, other, rtol=_ROUNDING, atol=_ROUNDING)
