"""Shares of the posterior that surrogates about different modes hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from stansub.progress import Progress
from stansub.target.split import Split
from stansub.target.threads import together
from stansub.tuning.surrogates.evidence import CHECKS, Evidence, path_sampled
from stansub.tuning.surrogates.omissions import remainders
from stansub.tuning.surrogates.sampler_runs import spread
from stansub.tuning.surrogates.surrogate import TunedSurrogate

# Draws at which what a surrogate omits is evaluated.
_WEIGHED = 40
# Distance in sds of both surrogates from which draws of two surrogates are about two modes.
_APART = 3.0
# Share of the posterior from which a mode counts, and standard errors by which its estimate may be too small.
_SHARE, _ERRORS = 1e-3, 3.0


def by_share(
    split: Split, found: Sequence[TunedSurrogate], rng: np.random.Generator, progress: Progress
) -> TunedSurrogate:
    """Return the surrogate that holds most of the posterior, with those about other modes that hold a share of it."""
    if len(found) < 2:
        return found[0]
    weighed = sorted(zip(evidence(split, found, rng, progress), found, strict=True), key=lambda one: -one[0].log)
    (best, _), kept, left = weighed[0], list[TunedSurrogate](), list[float]()
    for its, one in weighed:
        if any(overlap(one, other) for other in kept):
            continue
        if its.log - best.log >= np.log(_SHARE) - _ERRORS * np.hypot(best.error, its.error):
            kept.append(one)
        else:
            left.append(best.log - its.log)
    return replace(kept[0], others=tuple(kept[1:]), behind=min(left, default=None))


def evidence(
    split: Split, found: Sequence[TunedSurrogate], rng: np.random.Generator, progress: Progress
) -> list[Evidence]:
    """Return the log evidence of each mode: that of the surrogate, and the median of what it omits over its draws."""
    progress("Estimating shares of modes")
    numbers, n = count(1), len(found) * CHECKS

    def sampled(given: tuple[TunedSurrogate, np.random.Generator], check: Callable[[], None]) -> Evidence:
        tuned, own = given

        def advance() -> None:
            check()
            progress.advance(next(numbers), n)

        surrogate = split.surrogate(tuned.transition.approximation)
        density = surrogate if tuned.transition.on_posterior is None else split.posterior()
        assert density is not None
        return path_sampled(density, tuned.hamiltonian(surrogate), tuned.draws[-1], own, advance)

    sampled_ones = together(sampled, list(zip(found, rng.spawn(len(found)), strict=True)), progress)
    return [its.plus(_omitted(split, one, progress)) for its, one in zip(sampled_ones, found, strict=True)]


def _omitted(split: Split, tuned: TunedSurrogate, progress: Progress) -> float:
    """Return what the program of a surrogate omits: the constant of its expansion, and the remainder at its draws."""
    approximation = tuned.transition.approximation
    if tuned.transition.on_posterior is not None:
        return 0.0
    omitted = remainders(split, approximation, spread(tuned.draws, _WEIGHED), progress)
    return approximation.quadratic.value + float(np.median(omitted))


def overlap(one: TunedSurrogate, other: TunedSurrogate) -> bool:
    """Return whether draws of two surrogates are about the same mode."""
    (mean, sd), (its_mean, its_sd) = ((each.draws.mean(axis=0), each.draws.std(axis=0)) for each in (one, other))
    return bool((np.abs(mean - its_mean) < _APART * (sd + its_sd)).all())
