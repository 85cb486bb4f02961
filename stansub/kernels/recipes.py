"""Kernels as a user writes them: values, bound to a target by each chain.

For example the scales of a multilevel model, which touch no data where effects are centred, beside everything else::

    stansub.Sequence(
        scales=stansub.OnParameters(stansub.Metropolis("random-walk"), ["tau"]),
        rest=stansub.Metropolis(),
    )
"""

from __future__ import annotations

import numbers
from collections import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from stansub._loop import Decider, Subset, Table
from stansub.errors import InputError
from stansub.kernels.base import Kernel
from stansub.kernels.combine import InMixture, InSequence, OnSome
from stansub.kernels.metropolis import MetropolisHastings
from stansub.kernels.proposals import Proposal
from stansub.target.split import Split
from stansub.types import FloatArray, IntArray


class Leaf(NamedTuple):
    """A kernel that proposes: what is to be adapted of a recipe.

    Attributes
    ----------
    proposal : str or Proposal
    places : ndarray of int64
        Of the parameters that it moves.
    exact : bool
        Whether its decisions are exact, whatever the test of the run is.
    """

    proposal: str | Proposal
    places: NDArray[np.int64]
    exact: bool = False


Leaves = Leaf | Mapping[str, "Leaves"]


class Bench(Protocol):
    """What a recipe is bound to.

    Attributes
    ----------
    decider : Decider
        The chain's own.
    names : sequence of str
        Of the unconstrained parameters: ``beta.2``.
    """

    @property
    def decider(self) -> Decider: ...

    @property
    def exact_decider(self) -> Decider:
        """Takes every decision on all the data."""
        ...

    @property
    def names(self) -> abc.Sequence[str]: ...

    @property
    def split(self) -> Split:
        """The posterior in two; NoPredictorsError where it cannot be split."""
        ...

    @property
    def tables(self) -> Callable[[float], Table] | None:
        """From an error level to the looks at that level, where it changes during the run."""
        ...

    def touched_by(self, index: NDArray[np.int64], *, exact: bool = False) -> Subset | None:
        """The factors that depend on any of these parameters; None for all."""
        ...

    def among(self, observations: IntArray, *, exact: bool = False) -> Subset:
        """Some of the observations, by their numbers from 0."""
        ...


@runtime_checkable
class Recipe(Protocol):
    """A kernel before it is bound to a target.

    One that moves on anything but one smooth density of the whole space, such as between models of different dimension
    or on a manifold, says so by an attribute ``smooth`` that is False (see `is_smooth`); so does a proposal.
    """

    def bind(self, bench: Bench) -> Kernel:
        """The kernel of one chain."""
        ...

    def leaves(self, names: abc.Sequence[str]) -> Leaves:
        """What is to be adapted, in the shape of the kernel's params."""
        ...


@dataclass(frozen=True)
class Metropolis:
    """Metropolis-Hastings on all parameters.

    Attributes
    ----------
    proposal : {"adaptive-metropolis", "random-walk"} or Proposal
        The former learn in warmup.
    exact : bool
        Whether every decision is taken on all the data that it depends on, whatever the test of the run is.
    """

    proposal: str | Proposal = "adaptive-metropolis"
    exact: bool = field(default=False, kw_only=True)

    @property
    def smooth(self) -> bool:
        """Whether its proposal moves on one smooth density of the whole space."""
        return is_smooth(self.proposal)

    def bind(self, bench: Bench) -> Kernel:
        return (
            MetropolisHastings(bench.exact_decider) if self.exact else MetropolisHastings(bench.decider, bench.tables)
        )

    def leaves(self, names: abc.Sequence[str]) -> Leaves:
        return Leaf(self.proposal, np.arange(len(names)), self.exact)


@dataclass(frozen=True)
class OnParameters:
    """A kernel on some of the parameters, the others standing still; decided from the factors that they touch.

    Attributes
    ----------
    kernel : Metropolis
        Its proposal sees the values of these parameters alone.
    names : sequence of str
        Parameters of the program (``beta``, all of it) or elements of unconstrained ones (``beta.2``).
    observations : callable, optional
        Of the unconstrained position: numbers, from 0, of the observations that these parameters touch there, where
        that changes with other parameters, such as the members of a cluster. They must not depend on the parameters
        that move. By default what is touched is found once, from gradients, or all are taken.
    """

    kernel: Metropolis
    names: abc.Sequence[str]
    observations: Callable[[FloatArray], IntArray] | None = field(default=None, kw_only=True)

    @property
    def smooth(self) -> bool:
        """Whether its kernel moves on one smooth density of the whole space."""
        return self.kernel.smooth

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Metropolis):
            raise InputError(f"OnParameters needs a Metropolis kernel, not {_described(self.kernel)}")
        names = self.names
        if not isinstance(names, abc.Sequence) or not all(isinstance(one, str) for one in names):
            raise InputError(f"OnParameters needs names of parameters, such as ['beta'], not {names!r}")

    def bind(self, bench: Bench) -> Kernel:
        index, exact = find(bench.names, self.names), self.kernel.exact
        decider = bench.exact_decider if exact else bench.decider
        if self.observations is None:
            touched = bench.touched_by(index, exact=exact)
            return OnSome(decider, index, lambda _: touched)
        observations = self.observations
        return OnSome(decider, index, lambda position: bench.among(observations(position), exact=exact))

    def leaves(self, names: abc.Sequence[str]) -> Leaves:
        return Leaf(self.kernel.proposal, find(names, self.names), self.kernel.exact)


@dataclass(init=False, eq=False)
class _Parts:
    """Named kernels."""

    kernels: dict[str, Recipe]

    def __init__(self, kernels: Mapping[str, Recipe]) -> None:
        if not kernels:
            raise InputError(f"{type(self).__name__} needs at least one kernel")
        for name, one in kernels.items():
            if not name.isidentifier():  # statistics carry it, with a dot behind it
                raise InputError(f"{name!r} cannot be the name of a kernel: use letters, digits and underscores")
            check_recipe(one, name)
        self.kernels = dict(kernels)

    @property
    def smooth(self) -> bool:
        """Whether all of them move on one smooth density."""
        return all(map(is_smooth, self.kernels.values()))

    def leaves(self, names: abc.Sequence[str]) -> Leaves:
        """Of each part, by its name."""
        return {name: kernel.leaves(names) for name, kernel in self.kernels.items()}

    def _bound(self, bench: Bench) -> dict[str, Kernel]:
        return {name: kernel.bind(bench) for name, kernel in self.kernels.items()}


@dataclass(init=False, eq=False)
class Sequence(_Parts):
    """All kernels at every step, in the order in which they are given: ``Sequence(first=..., second=...)``."""

    def __init__(self, **kernels: Recipe) -> None:
        super().__init__(kernels)

    def bind(self, bench: Bench) -> Kernel:
        """The kernel of one chain."""
        return InSequence(self._bound(bench))


@dataclass(init=False, eq=False)
class Mixture(_Parts):
    """One of the kernels at each step, drawn with probabilities in proportion to weights, equal ones by default.

    Raises
    ------
    InputError
        When there are no kernels, or the weights are not one positive number for each.
    """

    weights: FloatArray

    def __init__(self, weights: Mapping[str, float] | None = None, **kernels: Recipe) -> None:
        super().__init__(kernels)
        given = dict.fromkeys(kernels, 1.0) if weights is None else weights
        if not _are_weights(given, kernels):
            raise InputError(f"weights must be a positive number for each of {', '.join(kernels)}, not {weights}")
        values = np.array([given[name] for name in kernels])
        self.weights = values / values.sum()

    def bind(self, bench: Bench) -> Kernel:
        """The kernel of one chain."""
        return InMixture(self._bound(bench), self.weights)


def is_smooth(moves: str | Proposal | Recipe) -> bool:
    """Whether a kernel or proposal moves on one smooth density of the whole space, with modes to be looked for."""
    return bool(getattr(moves, "smooth", True))


def check_recipe(kernel: Any, name: str) -> None:
    """Raise InputError unless what was given under a name is a kernel, of this package or one's own."""
    if isinstance(kernel, type) or not isinstance(kernel, Recipe):
        raise InputError(
            f"{name} must be a kernel, such as stansub.Metropolis(), not {_described(kernel)}; pass functions and "
            "names of proposals to stansub.Metropolis(proposal)"
        )


def _described(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a value of type {type(value).__name__}"


def _are_weights(given: Any, kernels: Mapping[str, Recipe]) -> bool:
    """Whether there is a positive number for each kernel."""
    if not isinstance(given, Mapping) or set(given) != set(kernels):
        return False
    return all(isinstance(one, numbers.Real) and 0 < float(one) < np.inf for one in given.values())


def find(known: abc.Sequence[str], names: abc.Sequence[str]) -> NDArray[np.int64]:
    """Places of parameters among the unconstrained ones.

    Raises
    ------
    InputError
        For a name that is none of theirs, or none at all.
    """
    if isinstance(names, str):
        names = [names]
    found: list[int] = []
    for name in names:
        own = [place for place, one in enumerate(known) if one == name or one.startswith(f"{name}.")]
        if not own:
            raise InputError(f"{name!r} is not a parameter of the model; it has {', '.join(parameters(known))}")
        found += own
    if not found:
        raise InputError("name at least one parameter to update")
    return np.unique(np.array(found, dtype=np.int64))


def parameters(known: abc.Sequence[str]) -> list[str]:
    """Parameters of the program, from the names of unconstrained elements."""
    return list(dict.fromkeys(name.split(".")[0] for name in known))
