"""Kernels as users write them: values that each chain binds to a target.

For example, update the scales of a multilevel model, which need no data if effects are centred, and then all
parameters::

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
from stansub.kernels.combine import ConditionalMetropolis, MixtureKernel, SequenceKernel
from stansub.kernels.metropolis import MetropolisHastings
from stansub.kernels.proposals import Proposal
from stansub.target.split import Dynamics, Split
from stansub.types import FloatArray, IntArray


class Leaf(NamedTuple):
    """Kernel of a recipe whose proposal is to be adapted."""

    proposal: str | Proposal
    places: NDArray[np.int64]
    """Indices of the parameters that it moves."""
    exact: bool = False
    """Whether its decisions are exact, whatever the run's test is."""


Leaves = Leaf | Mapping[str, "Leaves"]


class Context(Protocol):
    """What a recipe is bound to: a chain's decider and the names of the parameters.

    Attributes
    ----------
    decider : Decider
        The chain's own decider.
    names : sequence of str
        Names of the unconstrained parameters: ``beta.2``.
    """

    @property
    def decider(self) -> Decider: ...

    @property
    def exact_decider(self) -> Decider:
        """Return a decider that uses all the data for every decision."""

    @property
    def names(self) -> abc.Sequence[str]: ...

    @property
    def split(self) -> Split:
        """Return the posterior split into prior and likelihood; raise NoPredictorsError if that is impossible."""

    @property
    def dynamics(self) -> Dynamics | None:
        """Return the posterior itself for trajectories; None if this process cannot evaluate it at once."""

    @property
    def n_observations(self) -> int: ...

    @property
    def tables(self) -> Callable[[float], Table] | None:
        """Return the function from an error level to its looks, if the level changes during the run."""

    def touched_by(self, index: NDArray[np.int64], *, exact: bool = False) -> Subset | None:
        """Return the factors that depend on any of these parameters; None for all."""

    def among(self, observations: IntArray, *, exact: bool = False) -> Subset:
        """Return the subset of these observations, given by number from 0."""


@runtime_checkable
class Recipe(Protocol):
    """Kernel before it is bound to a target.

    A recipe or proposal that does not move on one smooth density of the whole space, such as between dimensions or on a
    manifold, sets the attribute ``smooth`` to False (see `is_smooth`).
    """

    def bind(self, context: Context) -> Kernel:
        """Return the kernel of one chain."""

    def leaves(self, names: abc.Sequence[str]) -> Leaves:
        """Return the leaves to be adapted, in the structure of the kernel's params."""


class NotAdapted:
    """Base of recipes of kernels in which nothing is adapted."""

    def leaves(self, names: abc.Sequence[str]) -> Leaves:
        """Return no leaves: nothing is adapted."""
        return {}


@dataclass(frozen=True)
class Metropolis:
    """Metropolis-Hastings on all parameters.

    Attributes
    ----------
    proposal : {"adaptive-metropolis", "random-walk"} or Proposal
        The proposals given by name adapt in warmup.
    exact : bool
        Whether every decision uses all the data that it depends on, whatever the run's test is.
    """

    proposal: str | Proposal = "adaptive-metropolis"
    exact: bool = field(default=False, kw_only=True)

    @property
    def smooth(self) -> bool:
        """Return whether its proposal moves on one smooth density of the whole space."""
        return is_smooth(self.proposal)

    def bind(self, context: Context) -> Kernel:
        return (
            MetropolisHastings(context.exact_decider)
            if self.exact
            else MetropolisHastings(context.decider, context.tables)
        )

    def leaves(self, names: abc.Sequence[str]) -> Leaves:
        return Leaf(self.proposal, np.arange(len(names)), self.exact)


@dataclass(frozen=True)
class OnParameters:
    """Kernel on some of the parameters, with the others fixed; decisions use the factors that depend on these
    parameters.

    Attributes
    ----------
    kernel : Metropolis
        Kernel whose proposal sees the values of these parameters alone.
    names : sequence of str
        Parameters of the program (``beta``: all elements) or elements of unconstrained ones (``beta.2``).
    observations : callable, optional
        From the unconstrained position to the numbers, from 0, of the observations that depend on these parameters, if
        they change with other parameters, such as the members of a cluster. They must not depend on the parameters that
        move. By default gradients determine them once, or all observations are used.
    """

    kernel: Metropolis
    names: abc.Sequence[str]
    observations: Callable[[FloatArray], IntArray] | None = field(default=None, kw_only=True)

    @property
    def smooth(self) -> bool:
        """Return whether its kernel moves on one smooth density of the whole space."""
        return self.kernel.smooth

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Metropolis):
            raise InputError(f"OnParameters needs a Metropolis kernel, not {_described(self.kernel)}")
        names = self.names
        if not isinstance(names, abc.Sequence) or not all(isinstance(one, str) for one in names):
            raise InputError(f"OnParameters needs names of parameters, such as ['beta'], not {names!r}")

    def bind(self, context: Context) -> Kernel:
        index, exact = find(context.names, self.names), self.kernel.exact
        decider = context.exact_decider if exact else context.decider
        if self.observations is None:
            touched = context.touched_by(index, exact=exact)
            return ConditionalMetropolis(decider, index, lambda _: touched)
        observations = self.observations
        return ConditionalMetropolis(
            decider, index, lambda position: context.among(observations(position), exact=exact)
        )

    def leaves(self, names: abc.Sequence[str]) -> Leaves:
        return Leaf(self.kernel.proposal, find(names, self.names), self.kernel.exact)


@dataclass(init=False, eq=False)
class _Parts:
    """Base of recipes with named kernels."""

    kernels: dict[str, Recipe]

    def __init__(self, kernels: Mapping[str, Recipe]) -> None:
        if not kernels:
            raise InputError(f"{type(self).__name__} needs at least one kernel")
        for name, one in kernels.items():
            if not name.isidentifier():  # the name prefixes statistics, followed by a dot
                raise InputError(f"{name!r} cannot be the name of a kernel: use letters, digits and underscores")
            check_recipe(one, name)
        self.kernels = dict(kernels)

    @property
    def smooth(self) -> bool:
        """Return whether all kernels move on one smooth density."""
        return all(map(is_smooth, self.kernels.values()))

    def leaves(self, names: abc.Sequence[str]) -> Leaves:
        """Return the leaves of each kernel, by name."""
        return {name: kernel.leaves(names) for name, kernel in self.kernels.items()}

    def _bound(self, context: Context) -> dict[str, Kernel]:
        return {name: kernel.bind(context) for name, kernel in self.kernels.items()}


@dataclass(init=False, eq=False)
class Sequence(_Parts):
    """Apply all kernels at every step, in the given order: ``Sequence(first=..., second=...)``."""

    def __init__(self, **kernels: Recipe) -> None:
        super().__init__(kernels)

    def bind(self, context: Context) -> Kernel:
        """Return the kernel of one chain."""
        return SequenceKernel(self._bound(context))


@dataclass(init=False, eq=False)
class Mixture(_Parts):
    """Apply one kernel at each step, drawn in proportion to weights (equal by default).

    Raises
    ------
    InputError
        If there are no kernels, or the weights are not one positive number for each.
    """

    weights: FloatArray

    def __init__(self, weights: Mapping[str, float] | None = None, **kernels: Recipe) -> None:
        super().__init__(kernels)
        given = dict.fromkeys(kernels, 1.0) if weights is None else weights
        if not _are_weights(given, kernels):
            raise InputError(f"weights must be a positive number for each of {', '.join(kernels)}, not {weights}")
        values = np.array([given[name] for name in kernels])
        self.weights = values / values.sum()

    def bind(self, context: Context) -> Kernel:
        """Return the kernel of one chain."""
        return MixtureKernel(self._bound(context), self.weights)


def is_smooth(moves: str | Proposal | Recipe) -> bool:
    """Return whether a kernel or proposal moves on one smooth density of the whole space, so that it has modes."""
    return bool(getattr(moves, "smooth", True))


def check_recipe(kernel: Any, name: str) -> None:
    """Raise InputError unless the value of option ``name`` is a kernel, built-in or custom."""
    if isinstance(kernel, type) or not isinstance(kernel, Recipe):
        raise InputError(
            f"{name} must be a kernel, such as stansub.Metropolis(), not {_described(kernel)}; pass functions and "
            "names of proposals to stansub.Metropolis(proposal)"
        )


def _described(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a value of type {type(value).__name__}"


def _are_weights(given: Any, kernels: Mapping[str, Recipe]) -> bool:
    """Return whether there is a positive number for each kernel."""
    if not isinstance(given, Mapping) or set(given) != set(kernels):
        return False
    return all(isinstance(one, numbers.Real) and 0 < float(one) < np.inf for one in given.values())


def find(known: abc.Sequence[str], names: abc.Sequence[str]) -> NDArray[np.int64]:
    """Return the indices of parameters among the unconstrained ones.

    Raises
    ------
    InputError
        If a name matches no parameter, or no name is given.
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
    """Return the program's parameters, from the names of unconstrained elements."""
    return list(dict.fromkeys(name.split(".")[0] for name in known))
