"""Choices made for a run, as values with their figures and reasons.

Choices of control variates are in `stansub.variates_selection`, those of tests, blocks and audits in
`stansub.decision_selection`. Texts name options as in Python, between backticks: `test='exact'`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, ClassVar

from stansub.mode_findings import exchanged
from stansub.wording import SelfDescribing, filled, listed, percent, rounded, same_with_signs

# Maximum number of parameters named.
_MOST_NAMED = 4
# Multiple of a rival's effective draws from which it hardly moved.
_HARDLY_MOVED = 10_000


class Chosen(SelfDescribing):
    """A choice with its reason; a subclass has a template of its text (see `filled`), or describes itself."""

    about: ClassVar[str]
    """What it is a choice of; the last choice of a thing stands."""
    text: ClassVar[str]

    def record(self) -> dict[str, Any]:
        """Return the choice as stored in the output: plain values, and the kind by name."""
        return {"kind": type(self).__name__, **asdict(self)}

    def describe(self) -> str:
        """Return the choice and its reason in words."""
        return filled(self.text, self)


Choices = Mapping[str, Chosen]
"""Choices by what they are about, in the order in which they were made."""


def updated(before: Choices, *chosen: Chosen) -> dict[str, Chosen]:
    """Return the earlier choices, with these replacing those about the same thing."""
    return {**before, **{one.about: one for one in chosen}}


# The mode


class ModesFound(Chosen):
    """Result of the search for modes."""

    about = "mode"
    log_density: float
    """Log density at the mode with most evidence."""
    n_reached: int
    n_starts: int
    """Starts that ended there, and all starts."""
    shares: tuple[float, ...]
    """Shares of the evidence of the modes that may hold a share of the posterior."""
    interchangeable: tuple[str, ...]
    """Parameters whose labels switch between modes."""
    below: tuple[float, ...]
    """Differences in log density of modes with negligible evidence from the highest."""
    n_passes: float
    seconds: float

    def describe(self) -> str:
        text = f"log density {self.log_density:,.2f} ({self.n_reached} of {self.n_starts} starts)"
        if len(self.shares) > 1:
            shares = ", ".join(f"{share:.2g}" for share in self.shares)
            text += f"; {len(self.shares)} modes with shares {shares} of the evidence"
        if self.interchangeable:
            text += f"; the labels of {listed(self.interchangeable)} switch"
        if self.below:
            below = ", ".join(f"{difference:,.1f}" for difference in self.below[:3])
            more = ", ..." if len(self.below) > 3 else ""
            text += f"; {len(self.below)} with negligible evidence, lower by {below}{more}"
        return f"{text}; {self.n_passes:.1f} passes over the data in {self.seconds:.1f} s"


class SurrogateSettled(Chosen):
    """An expansion of the likelihood from which a surrogate is sampled."""

    about = "surrogate"
    noise: float
    """Standard deviation of what it omits; infinite if the likelihood is 0 or undefined at some draws, 0 if it is not
    sampled, because trajectories are on the posterior itself.
    """
    n_passes: int
    sampler: str
    """How it is sampled."""
    n_starts: int = 0
    n_reached: int = 0
    n_modes: int = 1
    """If the likelihood is of no known family: climbs from random starts, those that reached the highest maximum, and
    the modes of the posterior that they found.
    """
    n_seen: int = 0
    """Modes at which trajectories from random starts arrived, if there were any; `n_modes` hold most of the posterior.
    """
    behind: float | None = None
    """Difference in log evidence between the best mode and the best of those that hold little, if there are any."""

    def describe(self) -> str:
        error = f"with an error of {self.noise:.2g} in the log density (standard deviation)"
        if not math.isfinite(self.noise):
            error = "with draws at which the likelihood is 0 or undefined"
        if self.noise == 0:
            error = "for coordinates and a metric only"
        return (
            f"an approximation in the likelihood's own arguments, {error}, computed in {self.n_passes} passes over the "
            f"data; sampled by {self.sampler}"
        )


class ProductsLeft(Chosen):
    """Effects that the likelihood multiplies by other parameters; surrogate transitions need the products declared."""

    about = "products"
    text = "the likelihood multiplies {effects:joined} by other parameters, and no variable is their product"
    effects: tuple[str, ...]


class StartsMoved(Chosen):
    """Chains do not begin at their inits, which they could not leave."""

    about = "starts"
    chains: tuple[int, ...]
    """Their numbers, from 1."""

    def describe(self) -> str:
        numbers = listed([str(one) for one in self.chains])
        which = f"chains {numbers} begin" if len(self.chains) > 1 else f"chain {numbers} begins"
        return (
            f"{which} about the maximum of the likelihood to which a climb from the inits leads: at the inits, moves "
            "that suit the posterior would be rejected"
        )


class SignsChange(Chosen):
    """Signs of parameters can change together without changing the posterior, so chains start on both sides."""

    about = "signs"
    names: tuple[tuple[str, ...], ...]
    """Parameters that change their signs together, the smallest first."""

    def describe(self) -> str:
        return f"{same_with_signs(self.names)}; unless you give `inits`, every second chain starts with other signs"


class StartsAtOneCopy(Chosen):
    """The posterior has copies of a mode, and chains start at one of them."""

    about = "labels"
    permuted: tuple[str, ...]
    becomes: Mapping[str, str]
    """See `stansub.mode_findings.LabelsSwitch`."""

    def describe(self) -> str:
        changes = exchanged(self.permuted, self.becomes)
        return f"the posterior is the same if {changes}; unless you give `inits`, all chains start at one of the modes"


class Along(StrEnum):
    """Why trajectories are on the posterior itself from the first."""

    CHEAP = "gradients of all the data cost little more than those of a surrogate"
    NO_MAXIMUM = "no climb of the likelihood ended at a maximum, about which a surrogate could expand it"
    FAR = "surrogates about the maximum of the likelihood do not lead to the posterior"


class TransitionsTaken(Chosen):
    """Surrogate transitions are used."""

    about = "proposal"
    asked: bool
    """Whether the user requested them."""
    effects: tuple[str, ...]
    """Parameters that are effects with an unknown scale; there may be none."""
    n_parameters: int
    normal: float | None
    """Share of normal moves that would be accepted on the surrogate; None if not tried."""
    accepted: float
    """Share of the transitions tried that were accepted."""
    hardly_moves: bool
    """Whether so few are accepted, or so many diverge, that the chains will not mix."""
    diverging: float = 0.0
    """Share of the transitions on the surrogate that diverged."""
    of_surrogate: float | None = None
    """Share of surrogate transitions that were accepted, if trajectories on the posterior itself replace them."""
    along: Along | None = None
    """Why such trajectories are taken without a trial of surrogate transitions, if they are."""
    independent: float | None = None
    """Acceptance rate of independent draws from the normal approximation at the mode, if that is the reason."""
    adds_logarithms: bool = False
    """Whether the likelihood adds up logarithms of probabilities, as with latent classes."""

    def describe(self) -> str:
        normal = f", and {percent(self.normal)} of normal moves would be accepted" if self.normal is not None else ""
        suits = _suiting(self.effects, self.n_parameters, adds_logarithms=self.adds_logarithms)
        why = "requested" if self.asked else f"{suits}{normal}"
        if self.independent is not None:
            accepted = f"{percent(self.independent)} of independent draws from the Laplace approximation were accepted"
            why = f"the posterior is far from normal ({accepted})"
        if self.of_surrogate is not None:
            omits = f"omits too much ({percent(self.of_surrogate)} of the trial surrogate transitions were accepted)"
            return f"NUTS on the posterior itself, in coordinates from a surrogate, which {omits}: {why}"
        if self.along is not None:
            return f"trajectories on the posterior itself, because {self.along.value}: {why}"
        return f"surrogate transitions: {why}; {self.trial}"

    @property
    def trial(self) -> str:
        """Return the result of the trial in words."""
        return _of_trial(self.accepted, self.diverging)


class StepCost(Chosen):
    """Cost of a step, measured during set-up, if trajectories on the posterior itself make all or some of them."""

    about = "cost of a step"
    gradients: float | None
    """Mean number of gradients of all the data, if known."""
    seconds: float
    """Seconds if no other chain runs."""

    def describe(self) -> str:
        n = "several" if self.gradients is None else rounded(self.gradients)
        return f"{n} gradients of all the data ({rounded(self.seconds)} s) on average, as measured before sampling"


class TransitionsLeft(Chosen):
    """Surrogate transitions are not used, though the text suggests them."""

    about = "surrogate transitions"
    effects: tuple[str, ...]
    """Parameters that are effects with an unknown scale; if there are none, an observation reads few of many
    parameters.
    """
    n_parameters: int
    hardly_moves: bool = False
    """Whether other moves will not mix, because there are many parameters."""
    reason: str = ""
    """Why there is no surrogate; empty if there is one."""
    normal: float | None = None
    """Share of normal moves that would be accepted on the surrogate, if that is the reason."""
    accepted: float | None = None
    """Share of the transitions tried that were accepted, if that is the reason."""
    diverging: float = 0.0
    """Share of the transitions on the surrogate that diverged."""
    adds_logarithms: bool = False
    """As in `TransitionsTaken`."""

    def describe(self) -> str:
        there_are = "there are " if self.effects else ""
        suits = _suiting(self.effects, self.n_parameters, adds_logarithms=self.adds_logarithms)
        although = f"not used, although {there_are}{suits}"
        if self.normal is not None:
            near = f"{percent(self.normal)} of normal moves would be accepted"
            return f"{although}: the posterior is nearly normal ({near})"
        if self.accepted is not None:
            return f"{although}: {_of_trial(self.accepted, self.diverging)}"
        return f"{although}: {self.reason}"

    @property
    def trial(self) -> str:
        """Return why there was no trial, or its result, in words."""
        return f"surrogate transitions are {self.describe()}"


class LevelsSettled(Chosen):
    """Groupings whose levels move and are accepted one by one are found, and the chains use them."""

    about = "proposal"
    asked: bool
    """Whether the user requested them."""
    n_levels: tuple[int, ...]
    """Levels of each grouping; 1 for common coefficients."""
    accepted: tuple[float, ...]
    """Share of the moves of each grouping's levels accepted at the end of set-up."""
    n_slices: int
    """Moves without data."""
    n_passes: int
    hardly_moves: bool = False
    """Whether so few moves of a grouping's levels are accepted that the chains will not mix."""

    def describe(self) -> str:
        why = "requested" if self.asked else "the likelihood multiplies coefficients of two groupings"
        return (
            f"Metropolis within Gibbs: {why}; {self._each} accepted in trial moves, and {self.n_slices} moves "
            f"without data; set up in {self.n_passes} passes over the data"
        )

    @property
    def trial(self) -> str:
        """Return the result of the trial in words."""
        return f"Metropolis within Gibbs moved {self._each} in a trial"

    @property
    def _each(self) -> str:
        """Return in words which share of the moves of each grouping was accepted."""
        return listed(
            [
                f"{percent(accepted)} of {f'{n:,} levels' if n > 1 else 'the common coefficients'}"
                for n, accepted in zip(self.n_levels, self.accepted, strict=True)
            ]
        )


# The proposal


@dataclass(frozen=True)
class Rival:
    """Another proposal in a race, with the winner's effective draws per observation as a multiple of its own."""

    name: str
    factor: float


@dataclass(frozen=True)
class RaceOutcome:
    """Winner of a race, its acceptance rate, and the rivals that it is compared with."""

    winner: str
    accepted: float
    rivals: tuple[Rival, ...]

    @property
    def clause(self) -> str:
        """Return it in a clause."""
        text = f"{percent(self.accepted)} accepted"
        moved = [rival for rival in self.rivals if rival.factor < _HARDLY_MOVED]
        for number, rival in enumerate(moved):
            of = "that of" if number else "the effective draws per observation of"
            text += f"{' and' if number else ','} {rounded(rival.factor)} times {of} {rival.name}"
        rest = [rival.name for rival in self.rivals if rival not in moved]
        return f"{text}; too few proposals of {listed(rest)} were accepted" if rest else text


class RaceWon(Chosen):
    """Winner of a race, mixed with a share of random-walk steps; ``sticky`` if chains stayed in tails before."""

    about = "proposal"
    race: RaceOutcome
    walk_every: int
    sticky: bool = False

    def describe(self) -> str:
        text = f"{self.race.winner} and one random-walk step in {self.walk_every}: {self.race.clause}"
        return f"{text}; no pCN, because chains stayed in tails for long" if self.sticky else text


class ProposalStays(Chosen):
    """The current proposal won against others about the pooled moments."""

    about = "proposal"
    text = "{race.winner} as before: {race.clause}"
    race: RaceOutcome


class WalkWon(Chosen):
    """A random walk won, whose scale is adapted."""

    about = "proposal"
    text = "{race.winner} with an adapted scale: {race.clause}"
    race: RaceOutcome


class TrajectoriesTaken(Chosen):
    """Trajectories on the posterior itself, because they make more effective draws for the data than other moves."""

    about = "proposal"
    n_steps: float
    """Gradients of a trajectory."""
    instead_of: str
    gain: float | None
    """Ratio of their effective draws to those of the other proposal; None if that was not raced."""

    def describe(self) -> str:
        text = f"NUTS on the posterior itself, {rounded(self.n_steps)} gradients of all the data a step"
        if self.gain is None:
            return f"{text}: few proposals about the mode were accepted"
        return f"{text}: {rounded(self.gain)} times the effective draws per observation of {self.instead_of}"


class TrajectoriesLeft(Chosen):
    """Trajectories on the posterior itself are not used: they are long, or many diverge."""

    about = "trajectories"
    n_steps: float
    """Gradients of a trajectory in the trial."""
    diverging: float = 0.0
    """Share of the trajectories that diverged."""

    def describe(self) -> str:
        text = f"not used: in a trial, each took about {rounded(self.n_steps)} gradients of all the data"
        return f"{text}, and {percent(self.diverging)} diverged" if self.diverging else text


class WalkSinceFewAccepted(Chosen):
    """Adaptive Metropolis: too few independent draws from the Laplace approximation were accepted."""

    about = "proposal"
    text = (
        "adaptive Metropolis that starts from the Laplace approximation: {accepted:percent} of independent draws from "
        "it were accepted"
    )
    accepted: float


class BetweenModes(Chosen):
    """Independent draws from the Laplace approximations of several modes, with random-walk steps about each."""

    about = "proposal"
    text = (
        "independent draws from the Laplace approximations of {n_modes} modes, so that chains switch modes, and as "
        "many random-walk steps around each mode"
    )
    n_modes: int


class MiniBatchGradients(Chosen):
    """Langevin moves with gradients of some blocks per step, with or without control variates."""

    about = "proposal"
    n_drawn: int
    n_blocks: int
    control_variates: bool

    def describe(self) -> str:
        text = f"Langevin moves with gradients from {self.n_drawn:,} of {self.n_blocks:,} blocks a step"
        if self.control_variates:
            return f"{text}, of the remainders of the expansions"
        few = self.n_drawn < self.n_blocks
        return f"{text}; without control variates their noise keeps steps short" if few else text


def _of_trial(accepted: float, diverging: float) -> str:
    """Return in words how many surrogate transitions of a trial were accepted, and how many diverged."""
    diverged = f", and {percent(diverging)} diverged" if diverging > 0.01 else ""
    return f"{percent(accepted)} of the trial transitions were accepted{diverged}"


def _suiting(effects: Sequence[str], n_parameters: int, *, adds_logarithms: bool) -> str:
    """Return in words what suits surrogate transitions: effects with an unknown scale, classes, many parameters."""
    if not effects and adds_logarithms:
        return "the likelihood adds up logarithms of probabilities"
    if not effects:
        return f"an observation reads few of the {n_parameters:,} parameters"
    named = listed(effects) if len(effects) < _MOST_NAMED else f"{', '.join(effects[: _MOST_NAMED - 1])} and others"
    return f"effects with an unknown scale ({named}) among {n_parameters:,} parameters"
