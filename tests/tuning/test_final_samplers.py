"""How often a surrogate is made again: about draws of short runs, and about those of its final sampler."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stansub.kernels.surrogate import NoUTurn
from stansub.target.approximation import Approximation
from stansub.tuning.surrogates import surrogate
from stansub.tuning.surrogates.hmc import Tuned

NOWHERE: Any = None
NUTS = NoUTurn(NOWHERE, NOWHERE, NOWHERE, 0.1)


class Corrections:
    """Surrogates by number: what each omits over draws of short runs, and over those of its final sampler."""

    def __init__(self, short: list[float], final: list[float]) -> None:
        self.short, self.final = short, final
        self.split = SimpleNamespace(surrogate=lambda about: SimpleNamespace(phi=lambda theta: theta))
        self.about: list[set[float]] = []
        """The draws about which each was made."""

    def explored(self, number: int) -> surrogate._Explored:
        about = SimpleNamespace(number=number, is_corrected=False)
        tuned = Tuned(NUTS, np.full((5, 1), float(number)))
        given: Any = about
        return surrogate._Explored(given, tuned, 0.0, self.short[number], np.zeros(1))

    def __call__(self, about: Any, draws: Any, noise: float) -> surrogate._Explored:
        return self.explored(about.number)

    def progress(self, stage: str) -> None:
        """Say nothing."""

    def strays(self, found: Any, before: Any) -> tuple[bool, int]:
        return False, 0

    def _ended(self, found: Any) -> surrogate._Explored:
        ended: surrogate._Explored = found._replace(noise=self.final[found.approximation.number])
        return ended

    def approximated(self, phis: Any, noise: float) -> tuple[Approximation, int]:
        self.about.append(set(np.ravel(phis)))
        about: Any = SimpleNamespace(number=len(self.about))
        return about, 10


@pytest.mark.parametrize(
    ("short", "final", "best", "about"),
    [
        ([0.1], [0.19], 0, []),
        ([0.1], [np.inf], 0, []),
        ([0.1, 0.1], [0.5, 0.1], 1, [{0.0}]),
        ([0.1, 0.1, 0.1, 0.1], [0.9, 0.7, 0.5, 0.1], 2, [{0.0}, {1.0}]),
        ([0.1, 0.1], [0.5, 0.6], 0, [{0.0}]),
        ([0.1, 0.6], [0.5, 0.1], 0, [{0.0}]),
        ([0.1, 0.47], [0.5, 0.1], 0, [{0.0}]),
    ],
    ids=["little", "nothing known", "better", "at most twice", "worse", "worse in short runs", "hardly better in them"],
)
def test_corrections_are_made_again_about_the_draws_of_the_final_sampler(
    short: list[float], final: list[float], best: int, about: list[set[float]]
) -> None:
    """If they omit more than 0.2 there, and as long as they omit less each time, in short runs less by a tenth."""
    corrections: Any = Corrections(short, final)
    first, last = corrections.explored(0), surrogate._Stage(corrections.approximated, 0.05)
    found, n_passes = surrogate.Exploration.finished(corrections, first, first, last)
    assert found.approximation.number == best  # type: ignore[attr-defined]
    assert found.noise == final[best]
    assert corrections.about == about
    seen = sum(short[number] <= 0.9 * final[number - 1] for number in range(1, len(about) + 1))
    assert n_passes == 1 + 11 * len(about) + seen


@pytest.mark.parametrize(
    ("short", "poor", "n"),
    [
        ([1.0, 0.5, 0.3, 0.2, 0.1], 0.6, 4),
        ([1.0, 0.5, 0.47, 0.2, 0.1], 0.6, 2),
        ([1.0, 0.5, 0.47, 0.2, 0.1], 0.4, 4),
        ([1.0, 0.5, 0.04, 0.01, 0.01], 0.6, 2),
    ],
    ids=["each gains much", "one gains little", "one gains little, but omits much", "one omits little"],
)
def test_expansions_end_where_another_gains_little(short: list[float], poor: float, n: int) -> None:
    expansions: Any = Corrections(short, short)
    stage = surrogate._Stage(expansions.approximated, 0.05, poor=poor)
    found, _, n_passes = surrogate.Exploration.improved(expansions, expansions.explored(0), [stage], 0)
    assert (found.noise, n_passes) == (short[n], 11 * n)
    assert expansions.about == [{float(number)} for number in range(n)]
