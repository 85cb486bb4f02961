"""Choices of control variates with reasons, as values like those of `stansub.selection`."""

from __future__ import annotations

from dataclasses import dataclass

from stansub import memory
from stansub.selection import Chosen
from stansub.wording import filled, listed, rounded


@dataclass(frozen=True)
class TooLarge:
    """An order whose coefficients would need too much memory, in bytes."""

    order: int
    memory: int


class VariatesByCost(Chosen):
    """The order of control variates with the smallest total cost of set-up and decisions."""

    about = "control variates"
    order: int
    blocks: tuple[float, float, float]
    """Blocks that a decision needs with none, with order 1 and with order 2."""
    n_blocks: int
    memory: int
    """Bytes; 0 with none."""
    seconds: float
    """Approximate seconds to make them."""
    far_from_quadratic: bool
    """Whether no order helps, because the log likelihood is far from quadratic within the posterior."""
    too_large: tuple[TooLarge, ...]
    memory_allowed: int

    def describe(self) -> str:
        text = f"{_order(self.order)}: a decision near the mode {_needs(self)}"
        if self.order:
            text += f"; {memory.amount(self.memory)}, about {self.seconds:.1g} s to compute"
        elif self.far_from_quadratic:
            text += (
                "; the log likelihood is far from quadratic within the posterior (few data, skewed, or several modes)"
            )
        for one in self.too_large:
            allowed = memory.amount(self.memory_allowed)
            text += f"; order {one.order} would take {memory.amount(one.memory)}, more than the {allowed} allowed"
        return text


class VariatesAsAsked(Chosen):
    """The user set the order, or a function of the program bounds the remainders of this order."""

    about = "control variates"
    order: int
    function: str = ""

    def describe(self) -> str:
        reason = f"the program's {self.function} bounds the remainders" if self.function else "as requested"
        return f"{_order(self.order)}: {reason}"


class VariatesForBounds(Chosen):
    """The test needs bounds on the remainders of control variates of this order: proved, or learned from draws."""

    about = "control variates"
    order: int
    n_draws: int = 0
    """Draws from which bounds were learned; 0 if they are proved."""
    function: str = ""
    """Function of the program that gives the bounds; empty if they follow from linear predictors."""

    def describe(self) -> str:
        bounds = f"bounds learned from {self.n_draws} draws" if self.n_draws else "proved bounds"
        if self.function:
            bounds = f"the bounds of {self.function}"
        return f"{_order(self.order)}: their remainders have {bounds}, which the test needs"


class RangeByPredictors(Chosen):
    """The range of a concentration bound follows from proved bounds on the remainders of control variates."""

    about = "range"
    asked: bool
    """Whether the user named this source; otherwise no function of the program gives the range."""

    def describe(self) -> str:
        why = "as requested" if self.asked else "no function of the program gives another range"
        return f"the remainders of control variates have proved bounds, because predictors are linear; {why}"


class VariatesOfObservations(Chosen):
    """Each observation has its own control variate, with proved bounds on the remainders."""

    about = "control variates"
    order: int
    """2 or 3."""
    candidates: float
    """Observations that a decision is expected to pick, of `n_observations`."""
    n_observations: int
    screened: bool = False
    """Whether a decision first reads rounded rows of all observations."""

    def describe(self) -> str:
        text = (
            f"{_order(self.order)}, of single observations: a decision near the mode uses about "
            f"{rounded(self.candidates)} of {self.n_observations:,} observations"
        )
        return text + (", which it selects by rows of 8 bits of all of them" if self.screened else "")


class NoVariatesForTest(Chosen):
    """The test uses the differences themselves."""

    about = "control variates"
    text = "none: the {test} test uses the differences themselves"
    test: str


class NoVariatesWithoutMode(Chosen):
    """There is no mode to expand about."""

    about = "control variates"
    text = "none: {reason}"
    reason: str


class VariatesMoved(Chosen):
    """The order at a new expansion point, with the blocks that a decision needs there with none, order 1 and 2."""

    about = "control variates"
    order: int
    blocks: tuple[float, float, float]
    n_blocks: int

    def describe(self) -> str:
        return f"{_order(self.order)}: at this expansion point a decision {_needs(self)}"


class VariatesGivenUp(Chosen):
    """After this many steps of warmup, decisions need fewer blocks without control variates."""

    about = "control variates"
    n_steps: int
    blocks_with: float
    blocks_without: float
    n_blocks: int

    def describe(self) -> str:
        return (
            f"none: after {self.n_steps:,} steps of warmup a decision needs about {_blocks(self.blocks_with)} of "
            f"{self.n_blocks:,} blocks with control variates, {_blocks(self.blocks_without)} without"
        )


# The expansion point of the control variates, which is checked when chains pool their draws after `n_steps` of warmup

_MEAN = "the mean of the chains after {n_steps:,} steps of warmup is {distance:.1f} sds from it"


class ExpansionPoint(Chosen):
    """Result of a comparison of the chains."""

    about = "expansion point"
    n_steps: int


class KeptForFewDraws(ExpansionPoint):
    """Kept: too few different draws to tell."""

    text = "kept: too few different draws in the first {n_steps:,} steps of warmup"


class KeptSinceNear(ExpansionPoint):
    """Kept: the mean of the chains is ``distance`` sds from it, and their sds are alike."""

    text = f"kept: {_MEAN}, and their sds are similar"
    distance: float


class KeptSinceApart(ExpansionPoint):
    """Kept: the chains are far apart with lower density between them."""

    text = "kept: after {n_steps:,} steps of warmup the chains are far apart with lower density between them"


class KeptSinceUndefined(ExpansionPoint):
    """Kept: derivatives are not defined at the mean of the chains."""

    text = f"kept: {_MEAN}; there {{error}}"
    distance: float
    error: str


class KeptForCost(ExpansionPoint):
    """Kept: another point saves too little. Blocks that a decision needs, and would need there, if any order helps."""

    distance: float
    blocks: float
    blocks_there: float | None
    n_blocks: int

    def describe(self) -> str:
        text = f"kept: {filled(_MEAN, self)}; a decision needs about {_blocks(self.blocks)} of "
        text += f"{self.n_blocks:,} blocks"
        if self.blocks_there is not None:
            text += f", {_blocks(self.blocks_there)} with control variates computed there"
        return text


class Moved(ExpansionPoint):
    """Moved to the mean of the chains, as after ``earlier`` steps: blocks that a decision needs, and needed before."""

    distance: float
    earlier: tuple[int, ...]
    blocks: float
    blocks_before: float
    n_blocks: int

    def describe(self) -> str:
        earlier = f", as after {listed([f'{n:,}' for n in self.earlier])}" if self.earlier else ""
        origin = "the one before" if self.earlier else "the mode"
        return (
            f"moved to the mean of the chains after {self.n_steps:,} steps of warmup{earlier}, {self.distance:.1f} sds "
            f"from {origin}: a decision needs about {_blocks(self.blocks)} of {self.n_blocks:,} blocks, "
            f"{_blocks(self.blocks_before)} before"
        )


class GivenUp(ExpansionPoint):
    """Dropped: control variates do not pay."""

    text = "given up after {n_steps:,} steps of warmup"


def _order(order: int) -> str:
    return f"order {order}" if order else "none"


def _needs(choice: VariatesByCost | VariatesMoved) -> str:
    """Return how many blocks a decision needs with this order, and with others."""
    needed = [*map(_blocks, choice.blocks)]
    return (
        f"needs about {needed[choice.order]} of {choice.n_blocks:,} blocks ({needed[2]} with order 2, {needed[1]} with "
        f"order 1, {needed[0]} with none)"
    )


def _blocks(blocks: float) -> str:
    return f"{max(1, round(blocks)):,}"
