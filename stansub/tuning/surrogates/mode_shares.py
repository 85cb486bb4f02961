"""Shares of the posterior that surrogates about different modes hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stansub.progress import Progress
from stansub.target.split import Split
from stansub.tuning.surrogates.omissions import remainders
from stansub.tuning.surrogates.sampler_runs import spread
from stansub.tuning.surrogates.surrogate import TunedSurrogate

# Draws from which what a surrogate holds of the posterior is estimated.
_WEIGHED = 40
# Distance in sds of both surrogates from which draws of two surrogates are about two modes.
_APART = 3.0
# Share of the posterior from which a mode counts.
_SHARE = 1e-3


def by_share(split: Split, found: Sequence[TunedSurrogate], progress: Progress) -> TunedSurrogate:
    """Return the surrogate that holds most of the posterior, with those about other modes that hold a share of it."""
    if len(found) < 2:
        return found[0]
    weighed = [_Weighed.of(split, one, progress) for one in found]
    weighed.sort(key=lambda one: one.log_evidence, reverse=True)
    least, kept = weighed[0].log_evidence + np.log(_SHARE), list[TunedSurrogate]()
    for one in weighed:
        if one.log_evidence >= least and not any(overlap(one.tuned, other) for other in kept):
            kept.append(one.tuned)
    return replace(kept[0], others=tuple(kept[1:]))


def overlap(one: TunedSurrogate, other: TunedSurrogate) -> bool:
    """Return whether draws of two surrogates are about the same mode."""
    (mean, sd), (its_mean, its_sd) = ((each.draws.mean(axis=0), each.draws.std(axis=0)) for each in (one, other))
    return bool((np.abs(mean - its_mean) < _APART * (sd + its_sd)).all())


@dataclass(frozen=True)
class _Weighed:
    """A surrogate with the log of its share of the posterior, up to a constant."""

    tuned: TunedSurrogate
    log_evidence: float

    @classmethod
    def of(cls, split: Split, tuned: TunedSurrogate, progress: Progress) -> _Weighed:
        """Return a surrogate with the median of log posterior density less normal log density over its draws."""
        approximation, normal = tuned.transition.approximation, tuned.normal(split)
        density, draws = split.surrogate(approximation).model, spread(tuned.draws, _WEIGHED)
        # The program of a surrogate omits the constant of its expansion.
        weights = approximation.quadratic.value + remainders(split, approximation, draws, progress)
        weights += [density.log_density(theta) - normal.log_density(theta) for theta in draws]
        return cls(tuned, float(np.median(weights) - np.log(np.diag(normal.cholesky)).sum()))
