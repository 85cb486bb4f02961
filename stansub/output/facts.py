"""Types of the facts that draws record of a run, against which a file is checked when it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NotRequired, TypedDict, get_type_hints

from stansub.codec import fits

_PER_CHAIN = list[int | float]


class MissedMode(TypedDict):
    """See `stansub.mode_findings.MissedMode`."""

    share: float
    log_density: float
    above: float
    values: dict[str, list[float]]


class Restriction(TypedDict):
    """See `stansub.mode_findings.Restriction`."""

    kind: str
    names: list[str]
    value: float


class VisitedModes(TypedDict):
    """See `stansub.mode_findings.VisitedModes`."""

    shares: list[float]
    copy_of: list[int]
    n_jumping: int
    n_chains: int
    values: dict[str, list[float]]
    permuted: list[str]
    becomes: dict[str, str]
    restrictions: list[Restriction]


class ModeCheck(TypedDict):
    """See `stansub.tuning.modes.mode_check.ModeCheck`."""

    n_starts: int
    n_modes: int
    missed: list[MissedMode]
    interchangeable: NotRequired[list[str]]
    reason: str
    failed: NotRequired[bool]


class Normality(TypedDict):
    """See `stansub.acceptance.normality.figures`."""

    n_pairs: NotRequired[int]
    n_subsets: int
    blocks: int
    critical: float
    nominal: float
    observed: float
    low: float
    high: float
    undefined: float
    n_decisions: int
    wrong: float
    wrong_low: float
    wrong_high: float
    wrong_limit: NotRequired[float]
    promised: float
    tail_fails: bool
    decisions_fail: bool


class LastCheck(TypedDict):
    """See `stansub.run.early_stopping.Check`."""

    reached: bool
    n_checks: int
    n_draws: int
    quantity: str
    ess: float
    r_hat: NotRequired[float | None]


class LevelAudit(TypedDict):
    """Audited and wrong decisions at one error level."""

    level: float
    n_audited: int
    n_wrong: int


class Settings(TypedDict, total=False):
    """Settings that are read back; the others are only displayed."""

    proposal: str
    evaluator: str
    thin: int | None
    seed: int | None
    max_error: float | None
    parallel_chains: int | None
    adapt_delta: float
    max_treedepth: int


class Choice(TypedDict, total=False):
    """Values of choices that are read back (see `stansub.selection`)."""

    kind: str
    hardly_moves: bool
    diverging: float
    n_starts: int
    n_reached: int
    n_modes: int
    n_seen: int
    behind: float | None
    reason: str
    normal: float | None
    effects: list[str]
    permuted: list[str]
    becomes: dict[str, str]
    names: list[list[str]]


class JsonFacts(TypedDict, total=False):
    """Facts that files hold as JSON."""

    mode_check: ModeCheck
    visited_modes: VisitedModes
    audit_by_level: list[LevelAudit]
    last_check: LastCheck
    starts: list[dict[str, Any]]
    asked: dict[str, Any]
    settings: Settings
    versions: dict[str, str]
    programs: dict[str, str]
    normality: Normality
    choices: dict[str, str]
    choice_values: dict[str, Choice]
    setup_times: dict[str, float]
    levels: dict[str, list[str]]


class Facts(JsonFacts, total=False):
    """Facts that are read back; others are only stored."""

    model: str
    model_code: str
    n_observations: int
    n_blocks: int
    block_size: int
    test: str
    guarantee: str
    epsilon: float
    delta: float
    noise: float
    compile_time: float
    setup_time: float
    wall_time: float
    quantities_time: float
    unsaved: str


JSON_ATTRS = tuple(JsonFacts.__annotations__)
_HINTS = get_type_hints(Facts)


def misfits(facts: Mapping[str, Any], counts: Mapping[str, Any]) -> Iterator[str]:
    """Yield names of facts, and of counts with a value per chain, that no run of this package records."""
    for name, value in facts.items():
        if not fits(value, _HINTS.get(name, Any)) or (name == "model" and not is_name(value)):
            yield name
    n_chains = max((len(values) for values in counts.values() if isinstance(values, list)), default=0)
    yield from (name for name, values in counts.items() if name in _HINTS or not _are_per_chain(name, values, n_chains))


def _are_per_chain(name: str, values: Any, n_chains: int) -> bool:
    """Return whether values can be those of ``n_chains`` chains; names of counts start with n."""
    if not fits(values, _PER_CHAIN) or len(values) != max(n_chains, 1):
        return False
    return not name.startswith("n_") or all(value >= 0 for value in values)


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a program, from which files are named."""
    return bool(text) and not any(character in "/\\" or not character.isprintable() for character in text)
