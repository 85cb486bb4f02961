"""Search for the modes of the log density on the unconstrained space, with Laplace approximations.

With tall data, most of the search can use a share of the data. L-BFGS climbs from many starts on a random percent of
the blocks. Starts that end high enough continue with Newton steps on a tenth and on all of the blocks, with the
curvature of the share before. (Newton steps with the Hessian of a random subset converge linearly, by a factor of about
sqrt(dim / observations in the subset) a step: Roosta-Khorasani and Mahoney 2019, Mathematical Programming 174.) The
Hessian of all the data is computed once, at each mode that may hold a share of the posterior. If likelihoods of linear
predictors make it as cheap as gradients, steps that would be many without it use it too.

Starts are drawn until little is left to find. If n starts ended at w modes, the basins of unseen modes are expected to
be w (w + 1) / (n (n - 1)) of all (Boender and Rinnooy Kan 1987, Mathematical Programming 37, with all numbers of modes
and sizes of basins equally likely before). The highest mode must also have been reached several times.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from threadpoolctl import threadpool_limits

from stansub import clock
from stansub.progress import Progress, as_progress
from stansub.selection import ModesFound
from stansub.target.factors import Target
from stansub.target.gradients import Objective, Team
from stansub.target.laplace import Mode
from stansub.target.partitioned import Predictors
from stansub.target.predictor_derivatives import PredictorObjective
from stansub.target.remainders import LinearPredictors
from stansub.tuning.modes.climbing import (
    MANY_PASSES,
    SHARE_TOLERANCE,
    TOLERANCE,
    Ascent,
    NoModeError,
    climb,
    lbfgs,
    same,
)
from stansub.tuning.modes.completion import Completion, evidence, is_maximum
from stansub.tuning.modes.labels import interchanged
from stansub.tuning.modes.smoothing import SmoothObjectives
from stansub.tuning.modes.starts import KINDS, RADIUS, Starts
from stansub.types import FloatArray
from stansub.wording import percent

__all__ = ["Mode", "Modes", "NoModeError", "Start", "find_modes", "find_other_modes"]

# Shares of the data, each with its minimum number of observations: in all and per parameter.
_SHARES = {0.01: 1, 0.1: 4}
_LEAST, _LEAST_EACH = 500, 50

# Starts: minimum, maximum, how many must end at the highest mode, and the share of basins that may stay unseen. If the
# minimum took this many passes over the data and this many observations, no more are drawn.
_FEWEST, _MOST, _REACHED, _UNSEEN = 9, 36, 3, 0.05
_PASSES, _OBSERVATIONS = 30.0, 5e6
# Relative gain below which the first L-BFGS of ascents that start together stops.
_FIRST_GAIN = 1e-9
# Walks that end lower on a share than the highest by more than this many standard errors of the difference are not
# continued, nor are more than this many.
_ERRORS, _FOLLOWED = 4.0, 12
# Number of ascents without an end on a share, however high, that are tried on more of the data.
_HOPEFUL = 2
# Log densities closer than this may be of modes that differ only in their labels.
_EQUAL = 0.01
# Difference in log evidence from the best mode below which a mode is still sampled.
_NEGLIGIBLE = 15.0


@dataclass(frozen=True)
class Start:
    """Result of one start."""

    kind: str
    """Kind of the start: one of `stansub.tuning.modes.starts.KINDS`, or "given"."""
    position: FloatArray
    """Shape (dim,): starting point."""
    log_density: float
    """Value reached: on all the data if the start ended at a mode, estimated from a share if it was not followed to the
    end, nan if it failed.
    """
    n_iterations: int
    """Iterations of L-BFGS and Newton, on shares and on all of the data."""
    outcome: str
    """What it found: "mode 1" (the mode with most evidence), "mode 2", ..., "lower", or the reason for the failure."""


@dataclass(frozen=True)
class Modes:
    """Result of a search from many starts."""

    found: tuple[Mode, ...]
    """Modes that may hold a share of the posterior, the one with most evidence first."""
    lower: tuple[tuple[FloatArray, float], ...]
    """Positions and log densities of maxima whose evidence is negligible, the highest first."""
    starts: tuple[Start, ...]
    interchangeable: tuple[str, ...]
    """Parameters whose labels switch between modes: modes with these elements in another order are copies."""
    n_passes: float
    """Gradient evaluations, in passes over all the data."""
    seconds: float
    smoothed: bool = False
    """Whether kinks of the log likelihood were smoothed."""

    @property
    def best(self) -> Mode:
        """Return the mode with most evidence."""
        return self.found[0]

    @cached_property
    def weights(self) -> FloatArray:
        """Return shares of the evidence, shape (len(found),)."""
        evidence = np.array([mode.log_evidence for mode in self.found])
        weights = np.exp(evidence - evidence.max())
        return np.asarray(weights / weights.sum())

    def choice(self) -> ModesFound:
        """Return what was found and its cost."""
        return ModesFound(
            log_density=self.best.log_density,
            n_reached=sum(one.outcome == "mode 1" for one in self.starts),
            n_starts=len(self.starts),
            shares=tuple(self.weights.tolist()),
            interchangeable=self.interchangeable,
            below=tuple(self.best.log_density - value for _, value in self.lower),
            n_passes=self.n_passes,
            seconds=self.seconds,
        )


def find_modes(
    posterior: Target,
    rng: np.random.Generator,
    *,
    points: Sequence[FloatArray | Mode] = (),
    starts: int | None = None,
    threads: int = 1,
    predictors: Predictors | None = None,
    progress: Callable[[str], None] | None = None,
) -> Modes:
    """Find the modes of a posterior from many starts.

    Parameters
    ----------
    points : sequence of ndarray, shape (dim,), or Mode
        Starts that precede those drawn; Newton steps from a mode begin with its curvature.
    starts : int, optional
        Number of starts to draw; by default until no further mode is expected.
    predictors : Predictors, optional
        How observations depend on the parameters; all the data are then evaluated without autodiff, and kinks are
        smoothed.

    Raises
    ------
    NoModeError
        If the log density is undefined, no start converges, or the highest point reached is not a maximum with a normal
        approximation.
    """
    with _searching(posterior, rng, threads, progress, predictors) as search:
        search.scout(points, starts)
        search.follow()
        return search.finish()


def find_other_modes(
    posterior: Target,
    rng: np.random.Generator,
    *,
    points: Sequence[FloatArray],
    starts: int,
    threads: int = 1,
    predictors: Predictors | None = None,
    progress: Callable[[str], None] | None = None,
) -> Modes | int:
    """Find modes from fresh starts besides those that ``points`` belong to; see `find_modes`.

    Returns
    -------
    Modes or int
        All modes, including those of the points. If no fresh start ends elsewhere as high as they do on a share of the
        data, only the number of their modes: nothing then needs checking on all the data.
    """
    with _searching(posterior, rng, threads, progress, predictors) as search:
        search.scout(points, starts)
        hopeful, known = search.hopeful(), search.ascents[: len(points)]
        if all(
            ascent.failure is None and is_maximum(ascent) and any(ascent is one for one in known) for ascent in hopeful
        ):
            return len(hopeful)
        search.follow()
        return search.finish()


@contextmanager
def _searching(
    posterior: Target,
    rng: np.random.Generator,
    threads: int,
    progress: Callable[[str], None] | None,
    predictors: Predictors | None = None,
) -> Iterator[_Search]:
    log = as_progress(progress)
    # L-BFGS calls BLAS for products of tiny matrices: waking threads for them takes longer than everything else.
    one_thread = threadpool_limits(limits=1, user_api="blas")
    with ExitStack() as stack:
        stack.enter_context(one_thread)
        team = stack.enter_context(Team(posterior.population, threads=threads, progress=log))

        smooth = None
        if isinstance(predictors, LinearPredictors) and predictors.family.floor:
            smooth = SmoothObjectives(team, predictors, rng)

        def whole() -> Objective:
            if smooth is not None:
                return smooth.whole()
            if predictors is not None:
                return PredictorObjective(team, predictors)
            return Objective(stack.enter_context(Team(posterior.population.in_bulk(), threads=threads, progress=log)))

        samples = []
        if (pilot := posterior.pilot) is not None:
            few = stack.enter_context(Team(pilot.population.in_bulk(), threads=threads, progress=log))
            weight = posterior.population.blocks.n_observations / pilot.population.blocks.n_observations
            samples.append(Objective(few, weight=weight))
        yield _Search(posterior, team, whole, smooth, rng, log, samples)


class _Search:
    """Walks from all starts, from a share of the data to all of them.

    Attributes
    ----------
    ends : list of Ascent
        Different maxima of the current objective, in the order in which they were found.
    copies : list of Ascent
        Those of them that are earlier ones with labels switched.
    left : list of (Ascent, float)
        Walks that were not followed to the end, and by how much they were lower than the highest.
    """

    def __init__(
        self,
        posterior: Target,
        team: Team,
        whole: Callable[[], Objective],
        smooth: SmoothObjectives | None,
        rng: np.random.Generator,
        log: Progress,
        samples: Sequence[Objective] = (),
    ) -> None:
        self.began = clock.now()
        self.model = posterior.full
        self.team, self.rng, self.log = team, rng, log
        self.smoothed = smooth is not None
        self._make_whole = whole
        self._made: list[Objective] = []
        self.names = [indexed(name) for name in posterior.full.param_unc_names()]
        blocks = posterior.population.blocks
        order = rng.permutation(len(blocks)).astype(np.int32)
        least = -(-max(_LEAST, _LEAST_EACH * posterior.population.dim) // blocks.size)
        sizes = sorted({max(round(share * len(blocks)), factor * least) for share, factor in _SHARES.items()})
        share = partial(Objective, team) if smooth is None else smooth.share
        # Blocks are evaluated in memory order; a share of nearly all blocks would save nothing.
        self.shares = [share(np.sort(order[:size])) for size in sizes if 3 * size < len(blocks)]
        # What shows which axes need all of the data: the smallest share, the sample of rows that this process has, or
        # a tenth of few data.
        tenth = share(np.sort(order[: -(-len(blocks) // 10)]))
        self.screens = [*samples, *self.shares, tenth][:1]
        self.ascents: list[Ascent] = []
        self.ends: list[Ascent] = []
        self.copies: list[Ascent] = []
        self.left: list[tuple[Ascent, float]] = []
        self.interchangeable: dict[str, None] = {}

    @property
    def whole(self) -> Objective:
        """Return the objective of all the data, created on first use because shares may suffice."""
        if not self._made:
            self._made.append(self._make_whole())
        return self._made[0]

    def _is_whole(self, objective: Objective) -> bool:
        return objective not in self.shares

    @property
    def observations(self) -> int:
        """Return the observations whose gradients have been evaluated so far."""
        teams = {id(team): team for team in (self.team, *(one.team for one in self._made))}
        return sum(team.observations for team in teams.values())

    @property
    def passes(self) -> float:
        """Return the gradient evaluations so far, in passes over all observations."""
        return self.observations / self.team.population.blocks.n_observations

    def scout(self, points: Sequence[FloatArray | Mode], n_drawn: int | None) -> None:
        """Climb from all starts on the first objective."""
        first = self.shares[0] if self.shares else self.whole
        self.log(f"Looking for modes: {self._share(first)}")
        for point in points:
            at, hessian = (point.position, point.hessian) if isinstance(point, Mode) else (point, None)
            self._start(first, Ascent(at, at, hessian=hessian))
        starts, kinds = Starts(self.team, first, self.rng, RADIUS), itertools.cycle(KINDS)
        if self._is_whole(first) and first.hessian_passes >= MANY_PASSES:
            self._start_together(first, starts, _FEWEST if n_drawn is None else n_drawn)
        while n_drawn is None or len(self.ascents) < len(points) + n_drawn:
            if n_drawn is None and self._enough(len(self.ascents) - len(points)):
                break
            kind = next(kinds)
            theta = starts.draw(kind)
            if theta is None:
                break
            self._start(first, Ascent(theta, theta, kind))
        if not self.ascents:
            raise NoModeError(
                "no mode: the log density or its gradient is not finite at any starting value tried; give inits "
                "nearer to plausible values",
                "undefined",
            )

    def _start(self, objective: Objective, ascent: Ascent) -> None:
        self.ascents.append(ascent)
        self._climb(objective, ascent)

    def _start_together(self, objective: Objective, starts: Starts, n: int) -> None:
        """Start some ascents by L-BFGS, then continue the highest one first: Hessians cost many gradients."""
        begun = list[tuple[float, Ascent]]()
        for kind in itertools.islice(itertools.cycle(KINDS), n):
            if (theta := starts.draw(kind)) is not None:
                end, n_iterations = lbfgs(objective, theta, tolerance=_FIRST_GAIN)
                begun.append((objective.value(end), Ascent(theta, end, kind, n_iterations=n_iterations)))
        for value, ascent in sorted(begun, key=lambda one: -one[0]):
            ascent.value, ascent.joined = value, same(ascent, self.ends)
            if ascent.joined is not None:
                self.ascents.append(ascent)
            else:
                self._start(objective, ascent)

    def _climb(self, objective: Objective, ascent: Ascent) -> None:
        tolerance = TOLERANCE if self._is_whole(objective) else SHARE_TOLERANCE
        climb(objective, ascent, tolerance, self.ends, self.names, partial(self._is_hopeless, objective))
        if ascent.failure is not None or ascent.joined is not None:
            return
        if ascent.hessian is None:
            self.left.append((ascent, max(one.value for one in self.ends) - ascent.value))
            return
        if names := self._switched(ascent):
            self.copies.append(ascent)
            self.interchangeable |= dict.fromkeys(names)
        self.ends.append(ascent)

    def _is_hopeless(self, objective: Objective, ascent: Ascent) -> bool:
        """Return whether an ascent is too low to continue: on all the data only where Hessians cost many gradients."""
        if not self.ends or (self._is_whole(objective) and objective.hessian_passes < MANY_PASSES):
            return False
        best = max(self.ends, key=lambda one: one.value)
        return best.value - ascent.value > self._uncertainty(objective, best, ascent)

    def _switched(self, ascent: Ascent) -> tuple[str, ...]:
        """Return the parameters whose labels are the only difference between this end and an earlier one."""
        alike = [other for other in self.ends if abs(other.value - ascent.value) < _EQUAL]
        found = (
            interchanged(
                self.model.param_names(), *(self.model.param_constrain(one.position) for one in (other, ascent))
            )
            for other in alike
        )
        return next(filter(None, found), ())

    def _enough(self, n: int) -> bool:
        """Return whether, after ``n`` starts, no further mode is expected or the budget is spent."""
        if n < _FEWEST:
            return False
        if n >= _MOST or (self.passes > _PASSES and self.observations > _OBSERVATIONS):
            return True
        if not self.ends:
            return False
        # All ascents left count as one region that is too low.
        n_ends = len(self.ends) - len(self.copies) + bool(self.left)
        highest = max(one.value for one in self.ends)
        reached = sum(ascent.failure is None and ascent.end.value > highest - _EQUAL for ascent in self.ascents)
        return reached >= _REACHED and n_ends * (n_ends + 1) <= _UNSEEN * n * (n - 1)

    def follow(self) -> None:
        """Continue, on growing shares of the data, from the ends that may be as high as the highest."""
        for present, following in itertools.pairwise([*self.shares, self.whole]):
            going = self.hopeful(present)
            points = "point" if len(going) == 1 else "points"
            self.log(f"Looking for modes: {self._share(following)} from {len(going)} {points}")
            self.ends, self.copies = [], []
            for number, ascent in enumerate(going):
                self.log.advance(number, len(going))
                # An ascent that failed on a share of the data may succeed on all.
                self._climb(following, ascent)

    def hopeful(self, objective: Objective | None = None) -> list[Ascent]:
        """Return ends that may be the highest on all the data, and ascents without an end that reached as high.

        The default is the first objective.
        """
        objective = objective or (self.shares[0] if self.shares else self.whole)
        failed = [ascent for ascent in self.ascents if ascent.failure is not None]
        if not self.ends:
            return failed[:_HOPEFUL]
        best, *lower = sorted(self.ends, key=lambda one: -one.value)
        followed, left = [best], []
        for ascent in lower:
            deficit = best.value - ascent.value
            if len(followed) < _FOLLOWED and deficit < self._uncertainty(objective, best, ascent):
                followed.append(ascent)
            else:
                left.append((ascent, deficit))
        self.left += [one for one in left if all(one[0] is not known for known, _ in self.left)]
        return followed + [ascent for ascent in failed if ascent.value > best.value][:_HOPEFUL]

    def _uncertainty(self, objective: Objective, one: Ascent, other: Ascent) -> float:
        """Return by how much two maxima of a share may differ if their counterparts on all the data are equally high.

        The blocks of the share are a random sample. The maximum of a share is higher than the log density of all the
        data there by about weight / 2 times a chi-square number with dim degrees of freedom.
        """
        evaluator, which = objective.team.population.evaluator(), objective.which
        n, n_blocks = len(which), len(objective.team.population.blocks)
        differences = evaluator.block_log_lik(one.position, which) - evaluator.block_log_lik(other.position, which)
        error = n_blocks * differences.std(ddof=1) / np.sqrt(n) * np.sqrt(1 - n / n_blocks)
        return float(_ERRORS * (error + objective.weight * np.sqrt(objective.dim))) + _NEGLIGIBLE

    def finish(self) -> Modes:
        """Return the points that may hold a share of the posterior, if the highest has a normal approximation."""
        ends = sorted(self.ends, key=lambda one: -one.value)
        if not ends:
            raise next(ascent.failure for ascent in self.ascents if ascent.failure is not None)
        heights = [evidence(ascent) for ascent in ends]
        worthy = [ascent for ascent, one in zip(ends, heights, strict=True) if one > max(heights) - _NEGLIGIBLE]
        completion = Completion(self.whole, self.screens, self.names)
        self.log(f"Curvature at the mode: {self.whole.curvature}")
        modes = {id(ends[0]): completion.complete(ends[0])}
        for ascent in worthy[:_FOLLOWED]:
            if ascent is not ends[0]:
                try:
                    modes[id(ascent)] = completion.complete(ascent)
                except NoModeError as error:
                    ascent.failure = error
        highest = max(mode.log_evidence for mode in modes.values())
        kept = {key: mode for key, mode in modes.items() if mode.log_evidence > highest - _NEGLIGIBLE}
        ranked = sorted(kept, key=lambda key: -kept[key].log_evidence)
        lower = [ascent for ascent in ends if id(ascent) not in kept and ascent.failure is None]
        return Modes(
            found=tuple(kept[key] for key in ranked),
            lower=tuple((ascent.position, ascent.value) for ascent in lower),
            starts=self._starts({key: f"mode {k}" for k, key in enumerate(ranked, start=1)}, ends[0].value),
            interchangeable=tuple(self.interchangeable),
            n_passes=self.passes,
            seconds=clock.now() - self.began,
            smoothed=self.smoothed,
        )

    def _starts(self, places: dict[int, str], highest: float) -> tuple[Start, ...]:
        left = {id(ascent): deficit for ascent, deficit in self.left}

        def came_to(ascent: Ascent) -> tuple[float, str]:
            if ascent.end.failure is not None:
                return float("nan"), str(ascent.end.failure)
            if id(ascent.end) in left:
                return highest - left[id(ascent.end)], "lower"
            return ascent.end.value, places.get(id(ascent.end), "lower")

        return tuple(
            Start(ascent.kind, ascent.start, value, ascent.n_iterations, outcome)
            for ascent in self.ascents
            for value, outcome in [came_to(ascent)]
        )

    def _share(self, objective: Objective) -> str:
        return "all the data" if self._is_whole(objective) else f"{percent(1 / objective.weight)} of the data"


def indexed(name: str) -> str:
    """Return ``beta.1.2`` as ``beta[1,2]``."""
    stem, *indices = re.split(r"[.:]", name)
    return f"{stem}[{','.join(indices)}]" if indices else stem
