"""Findings about the modes of a posterior, as values like those of `stansub.findings`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stansub.findings import Finding, Severity, Words
from stansub.wording import listed, percent

# Maximum numbers of parameters and of modes that a text names.
_NAMED, _SHARES = 4, 6


class MissedMode(Finding):
    """A mode that no chain visited."""

    severity = Severity.REJECT
    share: float
    log_density: float
    above: float
    """Difference from the highest mode that was visited; nan if none was."""
    values: Mapping[str, list[float]]
    """The parameters that differ most: the value there, and the smallest and largest of the draws."""

    def describe(self) -> Words:
        above = (
            f"; its log density is {self.above:,.1f} above that of the highest visited mode" if self.above > 0 else ""
        )
        places = [
            f"{name} is {there:.3g} (draws: {low:.3g} to {high:.3g})"
            for name, (there, low, high) in self.values.items()
        ]
        return Words(
            f"Chains missed a mode: no chain visited about {percent(self.share)} of the posterior{above}. "
            f"At that mode {', '.join(places) or 'no parameter is outside the range of the draws'}.",
            "Do not use these draws. Run again with another `seed`, or with `inits` near that mode. If the modes "
            "differ only by their labels, order the parameters in the program.",
        )


class ModesUnchecked(Finding):
    """The search for modes after sampling failed."""

    text = "stansub could not check whether the chains missed a mode: {reason}."
    remedy = "Compare with a second run that has another `seed` and other `inits`."
    reason: str


ENOUGH_CLIMBS = 2
"""Climbs that must have reached the highest maximum, lest a higher one be missed."""


class FewClimbs(Finding):
    """Hardly any climb of the likelihood reached its highest maximum."""

    n_reached: int
    n_starts: int

    def describe(self) -> Words:
        reached = f"{self.n_reached} of {self.n_starts} climbs of the likelihood from random starts"
        text = f"{reached} reached its highest maximum, so that there may be a higher one."
        if not self.n_reached:
            text = (
                "No climb of the likelihood from random starts reached the highest maximum found, so that there may be "
                "a higher one: the climb from where its arguments are 0, or from the mode of the prior, led there."
            )
        return Words(text, "Compare with a second run that has another `seed`, or `inits` near the posterior.")


class ModesLeft(Finding):
    """Random starts arrived at modes where no chain starts, because they hold little of the posterior."""

    severity = Severity.NOTE
    n_seen: int
    n_modes: int
    behind: float | None
    """Difference in log evidence, if the file has it."""

    def describe(self) -> Words:
        chosen = "one of them" if self.n_modes == 1 else f"{self.n_modes} of them"
        lower = f": by path sampling, their log evidence is lower by {self.behind or 0:,.0f} or more"
        less = "" if self.behind is None else lower
        return Words(
            f"Random starts arrived at {self.n_seen} modes, and chains started at {chosen}. The others hold little of "
            f"the posterior{less}.",
            "If parameters are implausible nevertheless, exclude their values by a constraint or a prior.",
        )


@dataclass(frozen=True)
class Restriction:
    """A restriction of parameters that leaves one of several modes that are copies of each other."""

    kind: str
    """Kind: "ordered" or "positive_ordered", for the type of the parameter; "bound", for a lower bound of it; "bounded
    by", for a lower bound of the second by the first; "larger", if the first must be larger than the second, or than
    ``value``.
    """
    names: tuple[str, ...]
    """One or two parameters, or elements."""
    value: float = 0.0
    """The bound; 0 if there is none."""

    @classmethod
    def describe(cls, restrictions: Sequence[Restriction]) -> str:
        """Return some as an instruction."""
        larger = [one._relation for one in restrictions if one.kind == "larger"]
        others = [one._instruction for one in restrictions if one.kind != "larger"]
        return listed([*others, *([f"declare the parameters so that {listed(larger)}"] if larger else [])])

    @property
    def _relation(self) -> str:
        first, last = self.names[0], self.names[-1]
        return f"{first} > {last if last != first else f'{self.value:g}'}"

    @property
    def _instruction(self) -> str:
        first, last = self.names[0], self.names[-1]
        return {
            "bound": f"bound {first}, such as by `<lower={self.value:g}>`",
            "bounded by": f"bound {last} by {first}, such as by `<lower={first}>`",
        }.get(self.kind, f"declare {first} as `{self.kind}`")


class LabelsSwitch(Finding):
    """The posterior does not change if parameters or their elements change places, or are mirrored."""

    permuted: tuple[str, ...]
    """Parameters whose elements change places."""
    becomes: Mapping[str, str] = field(default_factory=dict)
    """What other parameters become, such as ``1 - p`` or ``-beta``."""
    shares: tuple[float, ...] = ()
    """Shares of the draws that are near each of these copies of a mode; empty if unknown."""
    n_jumping: int = 0
    n_chains: int = 0
    """Chains that visited several modes, and all chains."""
    restrictions: tuple[Restriction, ...] = ()
    """What leaves one copy."""

    def describe(self) -> Words:
        what = "Labels" if self._exchanges else "Signs"
        draws = ""
        if self.shares:
            copies = _modes(self.shares, "copies of a mode", self.n_jumping, self.n_chains)
            draws = f" The draws contain {copies}."
        one = len(self.becomes) == 1 and not self.permuted
        moments = "Its mean and sd are" if one else "Means and sds of these parameters are"
        changes = exchanged(self.permuted, self.becomes)
        text = f"{what} switch: the posterior is the same if {changes}.{draws} {moments} meaningless."
        if self.restrictions:
            return Words(text, f"Keep one copy: {Restriction.describe(self.restrictions)}.")
        return Words(text, "Declare one of these parameters as ordered, or give its elements different priors.")

    @property
    def _exchanges(self) -> bool:
        """Return whether more than signs change."""
        return bool(self.permuted) or any(value != f"-{name}" for name, value in self.becomes.items())


class OneOfCopies(Finding):
    """The posterior has copies of a mode, and chains started at one of them."""

    severity = Severity.NOTE
    permuted: tuple[str, ...]
    becomes: Mapping[str, str]
    """See `LabelsSwitch`."""

    def describe(self) -> Words:
        changes = exchanged(self.permuted, self.becomes)
        text = f"The posterior is the same if {changes}. Chains started at one of these copies of a mode."
        return Words(text, "To choose the copy, declare one of these parameters as ordered, or give `inits`.")


class SeveralModes(Finding):
    """The draws are from several modes that are not copies of each other."""

    severity = Severity.NOTE
    shares: tuple[float, ...]
    """Shares of the draws."""
    n_jumping: int
    n_chains: int
    """Chains that visited several modes, and all chains."""
    values: Mapping[str, list[float]]
    """The parameters that differ most, at each mode."""

    def describe(self) -> Words:
        at = [f"{name} is {listed([f'{value:.3g}' for value in values])}" for name, values in self.values.items()]
        where = f" At these modes, {listed(at)}." if at and len(self.shares) <= _SHARES else ""
        return Words(
            f"The posterior has {_modes(self.shares, 'modes', self.n_jumping, self.n_chains)}.{where}",
            "Look at histograms of the draws (`stansub plot`): means and sds average over these modes.",
        )


@dataclass(frozen=True)
class VisitedModes:
    """The modes that draws are from, where there are several."""

    shares: Sequence[float]
    """Shares of the draws that are near each, the largest first."""
    copy_of: Sequence[int]
    """For each mode, the first one of which it is a copy; itself if there is none. Like ``shares``, it is empty if only
    places at which chains stayed are known, of which some are images of others.
    """
    n_jumping: int
    n_chains: int
    """Chains that visited several modes, and all chains."""
    values: Mapping[str, Sequence[float]]
    """The parameters that differ most between modes that are no copies, at each of these."""
    permuted: Sequence[str] = ()
    becomes: Mapping[str, str] = field(default_factory=dict)
    restrictions: Sequence[Restriction] = ()
    """See `LabelsSwitch`."""

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> VisitedModes:
        """Return them from what `asdict` returns."""
        restrictions = [
            Restriction(one["kind"], tuple(one["names"]), one["value"]) for one in record.get("restrictions", ())
        ]
        return cls(**{**record, "restrictions": restrictions})

    @property
    def are_copies(self) -> bool:
        """Return whether all of the modes are copies of one."""
        return len(set(self.copy_of)) <= 1

    def findings(self) -> Iterator[Finding]:
        """Yield findings about copies of modes, and about modes that are none."""
        if not self.shares:
            yield LabelsSwitch(tuple(self.permuted), dict(self.becomes), restrictions=tuple(self.restrictions))
            return
        n_modes, n_chains = len(self.shares), (self.n_jumping, self.n_chains)
        together = [[k for k in range(n_modes) if self.copy_of[k] == first] for first in sorted(set(self.copy_of))]
        if copies := [k for group in together if len(group) > 1 for k in group]:
            shares = tuple(self.shares[k] for k in copies)
            changes = tuple(self.permuted), dict(self.becomes)
            yield LabelsSwitch(*changes, shares, *n_chains, tuple(self.restrictions))
        if len(together) > 1:
            sums = tuple(sum(self.shares[k] for k in group) for group in together)
            yield SeveralModes(sums, *n_chains, {name: list(values) for name, values in self.values.items()})


def _modes(shares: Sequence[float], called: str, n_jumping: int, n_chains: int) -> str:
    """Return how many modes there are, their shares of the draws, and whether chains change between them."""
    some = [percent(share) for share in shares[:_SHARES]]
    of = listed(some) if len(shares) <= _SHARES else f"{', '.join(some)}, ..."
    jumping = f"{n_jumping} of the {n_chains} chains" if n_jumping else "no chain"
    changed = f"; {jumping} changed between them" if n_jumping < n_chains else ""
    return f"{len(shares)} {called} ({of} of the draws{changed})"


def exchanged(permuted: Sequence[str], becomes: Mapping[str, str]) -> str:
    """Return in clauses what changes: parameters whose elements change places, and what others become."""
    signs = [name for name, value in becomes.items() if value == f"-{name}"]
    pairs = [(name, value) for name, value in becomes.items() if becomes.get(value) == name and name < value]
    rest = becomes.keys() - set(signs) - {name for pair in pairs for name in pair}
    clauses = [f"the elements of {_named(permuted)} change places"] if permuted else []
    clauses += [f"{one} and {other} change places" for one, other in pairs]
    clauses += [f"{name} becomes {becomes[name]}" for name in becomes if name in rest][:_NAMED]
    if signs:
        clauses.append(f"{_named(signs)} {'change their signs' if signs[1:] else 'changes its sign'}")
    return ", and ".join(filter(None, [", ".join(clauses[:-1]), clauses[-1]]))


def _named(names: Sequence[str]) -> str:
    """Return the first few names."""
    return listed(names) if len(names) <= _NAMED else f"{', '.join(names[: _NAMED - 1])} and others"
