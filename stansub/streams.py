"""Random streams: one for each purpose, derived from the seed alone.

A stream is a key of numpy's `SeedSequence`. Leaving out a part of a run (audits, trials, generated quantities) leaves
its stream unused and changes nothing else.
"""

from __future__ import annotations

import secrets
from enum import Enum, IntEnum

import numpy as np


class Run(Enum):
    """Streams of a run."""

    DATA = (0,)
    """The shuffle of the observations, and the points of the proof."""
    MODES = (0, 1)
    ORDER = (0, 2)
    """Pairs and blocks by which the order of control variates is chosen."""
    RACE = (0, 3)
    POOLING = (0, 4)
    """Followed by the steps of warmup after which the draws are pooled."""
    STARTS = (0, 5)
    """At which mode each chain starts."""
    CHECK = (0, 6)
    """Fresh starts after sampling."""
    FOOTPRINTS = (0, 7)
    """Points that show which factors depend on which parameters."""
    FACTORISED = (0, 8)
    """The race with factorised decisions, beside that with others."""
    SURROGATE = (0, 10)
    """Short runs on surrogates, until the expansion point is chosen."""
    PILOT = (0, 9)
    """Steps by which a budget is planned; a number for each method and chain."""
    JOINT = (0, 11)
    """The race with joint decisions, beside those with others."""
    ALONG = (0, 20)
    """Trajectories on the posterior itself that are tried beside moves about the mode."""
    KAPPA = (0, 12)
    """The race between values of their kappa."""
    SUBSET = (0, 14)
    """Observations that are left out one by one, or predicted."""
    PARTITIONS = (0, 15)
    """Rows that are taken from partitions of the data."""
    TRANSITIONS = (0, 13)
    """Normal moves and transitions on a surrogate that are tried."""
    MAXIMA = (0, 18)
    """Starts of climbs to other maxima of the likelihood."""
    LEVELS = (0, 16)
    """Trial moves of levels of groupings."""
    REFERENCE = (0, 19)
    """The seed of NUTS, with which the draws are compared."""
    ALL = (0, 17)
    """The race with decisions from all observations, beside those with others."""


class Chain(IntEnum):
    """Streams of a chain."""

    INIT = 0
    STEPS = 1
    AUDITS = 2
    TRIAL = 3
    QUANTITIES = 4


def given_or_drawn(seed: int | None) -> int:
    """Return a seed, drawn if none is given."""
    return secrets.randbits(31) if seed is None else int(seed)


def sequence(seed: int, stream: Run | Chain, *, chain: int = 0, number: int | None = None) -> np.random.SeedSequence:
    """Return the seed sequence of a stream of a run, or of a chain, counted from 0.

    ``number`` distinguishes streams of one purpose.
    """
    key = stream.value if isinstance(stream, Run) else (1 + chain, stream.value)
    return np.random.SeedSequence(seed, spawn_key=key if number is None else (*key, number))


def generator(seed: int, stream: Run | Chain, *, chain: int = 0, number: int | None = None) -> np.random.Generator:
    """Return the generator of a stream; see `sequence`."""
    return np.random.default_rng(sequence(seed, stream, chain=chain, number=number))
