"""Sequential tests as tables: when is a decision clear enough to stop drawing blocks?

Every test is a table of looks. At look k, with n_k of the M units drawn without replacement, mean m and standard
deviation s (divisor n - 1), a decision falls when ``|m - mu0| > scale_k * s + offset_k * R``, R being the range of the
units' differences; the last look has all M units and always decides. Two tests count the noise of the estimate in and
so decide without waiting for a distance; their table is what they fall back on where that noise is too large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from stansub import _loop
from stansub.acceptance.correction import correction
from stansub.errors import InputError
from stansub.types import FloatArray, IntArray

# More looks than this gain nothing that is worth the error budget they take.
MAX_POCOCK_LOOKS = 200
# A crossing probability is found as 1 less its complement; for smaller error budgets rounding counts, and Bonferroni's
# critical value, which is hardly larger there, is taken.
_SMALLEST_SOLVED = 1e-10


@dataclass(frozen=True)
class Table:
    """The looks of a test.

    Attributes
    ----------
    n : ndarray of int32, shape (K,)
        Units at each look, increasing; the last is the size of the population.
    scale : ndarray of float64, shape (K,)
        Factor of the standard deviation.
    offset : ndarray of float64, shape (K,)
        Factor of the range.
    """

    n: IntArray
    scale: FloatArray
    offset: FloatArray


class Schedule(Protocol):
    """When to look."""

    def looks(self, n_units: int) -> IntArray:
        """Units at each look, the last being ``n_units``."""
        ...


@dataclass(frozen=True, kw_only=True)
class Geometric:
    """Looks at first, growth * first, growth^2 * first, ... units (Bardenet et al. 2014, figure 3).

    Raises
    ------
    InputError
        When ``first`` is not positive or ``growth`` does not exceed 1.
    """

    first: int
    growth: float = 2.0

    def __post_init__(self) -> None:
        if self.first < 1:
            raise InputError(f"the first look must have at least 1 block, not {self.first}")
        if not 1 < self.growth < np.inf:
            raise InputError(f"the growth of the looks must exceed 1, not be {self.growth}")

    def looks(self, n_units: int) -> IntArray:
        looks = [min(self.first, n_units)]
        while looks[-1] < n_units:
            looks.append(min(int(np.ceil(self.growth * looks[-1])), n_units))
        return np.array(looks, np.int32)


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """A look after every ``size`` units (Korattikara et al. 2014, algorithm 1).

    Raises
    ------
    InputError
        When ``size`` is not positive.
    """

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError(f"a look must add at least 1 block, not {self.size}")

    def looks(self, n_units: int) -> IntArray:
        return np.append(np.arange(self.size, n_units, self.size), n_units).astype(np.int32)


# Student's t asks for means of units that are near normal, the bounds ask for nothing.
T_LOOKS = Geometric(first=50)
# With a budget for the whole decision many looks cost little and let a decision stop as soon as it can.
POCOCK_LOOKS = Geometric(first=50, growth=1.1)
BOUND_LOOKS = Geometric(first=16)
# The noise must be measured before it can be counted in. Where it is little, as with control variates, 10 blocks do;
# where it is more, looks are few on the way, for at each a noise that happens to seem small is taken.
NOISE_LOOKS = Geometric(first=10, growth=1.5)
# A first look of fewer blocks tells too little of the noise.
_LEAST_MEASURED = 5
# Beyond, the error that the correction distribution leaves is no longer small beside that of the measured noise.
_MOST_NOISE = 1.2
# Where less noise would take a larger share of the blocks than this, it is not waited for.
_NOISE_SHARE = 0.5


class Test(Protocol):
    """A sequential test of whether the mean of a finite population exceeds a threshold.

    An attribute ``epsilon`` (or ``delta``), where there is one, is the error of a decision that is accepted.
    """

    @property
    def name(self) -> str:
        """Name on the command line and in the output."""
        ...

    @property
    def needs_range(self) -> bool:
        """Whether the table multiplies the range by anything but 0."""
        ...

    def table(self, n_units: int) -> Table:
        """The looks for a population of ``n_units`` units."""
        ...


@dataclass(frozen=True, kw_only=True)
class Exact:
    """Plain Metropolis-Hastings: one look, at everything."""

    name = "exact"
    needs_range = False

    def table(self, n_units: int) -> Table:
        _check_units(n_units)
        return Table(np.array([n_units], np.int32), np.zeros(1), np.zeros(1))


@dataclass(frozen=True, kw_only=True)
class _TTest:
    """What the t-tests share: a level, and when to look."""

    epsilon: float
    looks: Schedule
    needs_range = False

    def __post_init__(self) -> None:
        _check_level("epsilon", self.epsilon, zero=True)


@dataclass(frozen=True, kw_only=True)
class Austerity(_TTest):
    """Student's t-test at every look (Korattikara et al. 2014, algorithm 1).

    ``epsilon`` is the level of each single look: a decision falls when the tail probability of
    t = (m - mu0) / (s / sqrt(n) * sqrt(1 - (n - 1) / (M - 1))) with n - 1 degrees of freedom is below it (their eq. 3
    and 4, with the correction for drawing without replacement that belongs to the population variance with divisor
    M). The error of a whole decision is larger, for there are several looks: at 0.05 the
    draws of a random walk at equilibrium are visibly too wide, hence the small default. 0 is exact
    Metropolis-Hastings.

    Raises
    ------
    InputError
        When ``epsilon`` is not in [0, 1) or the schedule's first look has fewer than 2 units.
    """

    epsilon: float = 0.001
    looks: Schedule = T_LOOKS
    name = "austerity"

    def table(self, n_units: int) -> Table:
        if self.epsilon == 0:
            return Exact().table(n_units)
        return _t_table(_looks(self.looks, n_units, at_least=2), self.epsilon)


@dataclass(frozen=True, kw_only=True)
class Pocock(_TTest):
    """One critical value for all looks, with a budget for the error of the whole decision (Pocock 1977).

    ``epsilon`` bounds the probability that the decision differs from the one on all data, whatever the mean mu of the
    population. While the drawn mean is normal, the statistics at the looks are a standardised Brownian motion at
    times n / (M - n), so their correlations are known. The error is largest as mu approaches the threshold; a decision
    before the last look then goes either way with probability 1/2, one at the last look is right. The critical value c
    therefore solves P(|Z_k| > c at some look before the last) = 2 epsilon. For a small number of units c is replaced
    by the quantile of Student's t with the same tail probability. 0 is exact Metropolis-Hastings.

    Raises
    ------
    InputError
        When ``epsilon`` is not in [0, 1), the schedule's first look has fewer than 2 units, or there are more looks
        than `MAX_POCOCK_LOOKS`.
    """

    epsilon: float = 0.005
    looks: Schedule = POCOCK_LOOKS
    name = "pocock"

    def table(self, n_units: int) -> Table:
        if self.epsilon == 0:
            return Exact().table(n_units)
        n = _looks(self.looks, n_units, at_least=2)
        if n.size > MAX_POCOCK_LOOKS:
            raise InputError(
                f"pocock cannot share its error budget among {n.size} looks (at most {MAX_POCOCK_LOOKS}): "
                "take geometric looks, or larger ones"
            )
        critical = pocock_critical_value(self.epsilon, tuple(n.tolist())) if n.size > 1 else np.inf
        return _t_table(n, float(ndtr(-critical)))


@dataclass(frozen=True, kw_only=True)
class NoiseTest:
    """What the tests share that count the noise of the estimate in.

    The estimate x of the log ratio from n of the M blocks is taken for normal with standard error
    s = M sd / sqrt(n) * sqrt(1 - (n - 1) / (M - 1)). A decision falls at the first look at which s is at most ``noise``
    (with fewer than 20 blocks n / 20 of it); how many blocks that takes depends on s alone, never on x, which
    would spoil detailed balance. Where more than half of the blocks would be needed, Pocock's test with ``epsilon``
    goes on from what is drawn.

    What is left of error comes from s, which is measured: on normal blocks of whatever variance the log ratio is in
    effect off by at most 2.2 % of itself with ``noise`` = 1, by 1.3 % with 0.5 (found by simulation of the looks with
    the default schedule; Barker's test is the better of the two).

    Raises
    ------
    InputError
        When ``noise`` is not in (0, 1.2], ``epsilon`` not in (0, 1), the first look has fewer than 5 units, or there
        are more looks than `MAX_POCOCK_LOOKS`.
    """

    noise: float = 1.0
    epsilon: float = 0.005
    looks: Schedule = NOISE_LOOKS
    needs_range = False

    def __post_init__(self) -> None:
        _check_level("epsilon", self.epsilon)
        if not 0 < self.noise <= _MOST_NOISE:
            raise InputError(f"noise must be above 0 and at most {_MOST_NOISE}, not {self.noise}")
        if self.looks.looks(2 * _LEAST_MEASURED)[0] < _LEAST_MEASURED:
            raise InputError(f"the first look must have at least {_LEAST_MEASURED} blocks for the noise to be measured")

    def table(self, n_units: int) -> Table:
        """The looks, and Pocock's critical values at them."""
        return Pocock(epsilon=self.epsilon, looks=self.looks).table(n_units)

    def noise_rule(self) -> _loop.NoiseRule:
        """How the noise settles a decision, as the decision loop takes it."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Barker(NoiseTest):
    """Barker's acceptance probability with a noisy log ratio (Seita, Pan, Chen and Canny 2017).

    A proposal is accepted with probability 1 / (1 + exp(-log ratio)), Barker's in place of Metropolis': when the log
    ratio plus a standard logistic number is positive. Of that number x brings a normal part of variance s^2 along; a
    normal part of variance noise^2 - s^2 and a number from the correction distribution
    (`stansub.acceptance.correction.correction`) are added, so that together they are logistic. More noise means fewer
    blocks and a worse correction: the distribution function is met to within 1e-9 with ``noise`` = 0.8, 1e-7 with 1
    and 3e-5 with 1.2. The default is 1, where the log ratio is met to within 2e-6 up to 4 and 3e-5 up to 8, far better
    than the measured s allows for. Where Metropolis accepts nearly everything, Barker accepts half.
    """

    name = "barker"

    def noise_rule(self) -> _loop.NoiseRule:
        corrected = correction(self.noise)
        return _loop.BarkerRule(self.noise, _NOISE_SHARE, corrected.points, corrected.bounds)


@dataclass(frozen=True, kw_only=True)
class Penalty(NoiseTest):
    """Metropolis with a penalty for the noise of the log ratio (Ceperley and Dewing 1999).

    A proposal is accepted with probability min(1, exp(x - u)). For a known variance s^2 the penalty u = s^2 / 2 gives
    detailed balance exactly; for one that is estimated from n blocks it is s^2/2 + s^4 / (4 (n + 1)) +
    s^6 / (3 (n + 1) (n + 3)) + ..., which makes exp(-u) an unbiased estimate of exp(-s^2 / 2) and converges for
    s^2 < n / 4. Of proposals as likely as the state the share 2 Phi(-s / 2) is accepted, 0.62 with the noise that the
    default lets pass; less noise takes more blocks.
    """

    name = "penalty"

    def noise_rule(self) -> _loop.NoiseRule:
        return _loop.PenaltyRule(self.noise, _NOISE_SHARE)


@dataclass(frozen=True, kw_only=True)
class _Bound:
    """What the concentration bounds share: the error of a whole decision, and when to look."""

    delta: float = 0.01
    looks: Schedule = BOUND_LOOKS
    needs_range = True

    def __post_init__(self) -> None:
        _check_level("delta", self.delta)


@dataclass(frozen=True, kw_only=True)
class Hoeffding(_Bound):
    """Hoeffding's inequality without replacement, in the form of Bardenet and Maillard 2015 (Hoeffding-Serfling).

    With probability 1 - d each side, |m - mu| is at most R sqrt(rho_n log(1 / d) / (2 n)). ``delta`` bounds the
    probability of a wrong decision: look k spends delta / (2 k^2), over both sides (Bardenet et al. 2014, section 2.2
    with p = 2).

    Raises
    ------
    InputError
        When ``delta`` is not in (0, 1).
    """

    name = "hoeffding"

    def table(self, n_units: int) -> Table:
        n = _looks(self.looks, n_units)
        logs = np.log(2 / _spend(self.delta, n.size))
        return _closed(n, np.zeros(n.size), np.sqrt(_rho(n) * logs / (2 * n)))


@dataclass(frozen=True, kw_only=True)
class Bernstein(_Bound):
    """The empirical Bernstein bound (Bardenet et al. 2014, eq. 9, where R is at most 2 C).

    |m - mu| is at most sd sqrt(2 log(3 / d) / n) + 3 R log(3 / d) / n with probability 1 - d, sd with divisor n.
    ``delta`` bounds the probability of a wrong decision; look k spends d = delta / (2 k^2).

    Raises
    ------
    InputError
        When ``delta`` is not in (0, 1).
    """

    name = "bernstein"

    def table(self, n_units: int) -> Table:
        n = _looks(self.looks, n_units)
        logs = np.log(3 / _spend(self.delta, n.size))
        return _closed(n, np.sqrt(2 * logs / n) * _divisor_n(n), 3 * logs / n)


@dataclass(frozen=True, kw_only=True)
class BernsteinSerfling(_Bound):
    """The empirical Bernstein-Serfling bound for draws without replacement (Bardenet and Maillard 2015).

    On each side |m - mu| is at most sd sqrt(2 rho_n log(1 / d) / n) + kappa R log(1 / d) / n with probability 1 - 5 d,
    kappa = 7/3 + 3/sqrt(2), sd with divisor n. ``delta`` bounds the probability of a wrong decision; look k spends
    10 d = delta / (2 k^2), over both sides.

    Raises
    ------
    InputError
        When ``delta`` is not in (0, 1).
    """

    name = "bernstein-serfling"

    def table(self, n_units: int) -> Table:
        n = _looks(self.looks, n_units)
        logs = np.log(10 / _spend(self.delta, n.size))
        kappa = 7 / 3 + 3 / np.sqrt(2)
        return _closed(n, np.sqrt(2 * _rho(n) * logs / n) * _divisor_n(n), kappa * logs / n)


def level_of_looks(error: float, looks: Schedule, n_units: int) -> float:
    """Level of t-tests at single looks with which a whole decision errs with a probability of at most ``error``.

    Pocock's (see `Pocock`) or, for more looks than `MAX_POCOCK_LOOKS`, Bonferroni's.
    """
    n = _looks(looks, n_units, at_least=2)
    if n.size <= 2:
        return error
    if n.size > MAX_POCOCK_LOOKS:
        return error / (n.size - 1)
    return float(ndtr(-pocock_critical_value(error, tuple(n.tolist()))))


_T_TESTS: dict[str, Callable[..., Test]] = {"austerity": Austerity, "pocock": Pocock}
_BOUNDS: dict[str, Callable[..., Test]] = {
    "hoeffding": Hoeffding,
    "bernstein": Bernstein,
    "bernstein-serfling": BernsteinSerfling,
}
_NOISE_TESTS: dict[str, Callable[..., Test]] = {"barker": Barker, "penalty": Penalty}
TEST_NAMES = (*_T_TESTS, *_BOUNDS, *_NOISE_TESTS, "exact")


def is_own(test: Test) -> bool:
    """Whether it is a test of this package, whose promise is known."""
    return isinstance(test, Exact | _TTest | _Bound | NoiseTest)


def is_t_test(test: Test) -> bool:
    """Whether every decision of the test rests on Student's t."""
    return isinstance(test, _TTest)


def make_test(
    name: str, *, epsilon: float | None = None, delta: float | None = None, looks: Schedule | None = None
) -> Test:
    """Make a test from its name and settings; None stands for the test's default.

    Parameters
    ----------
    name : {"austerity", "pocock", "hoeffding", "bernstein", "bernstein-serfling", "barker", "penalty", "exact"}
    epsilon : float, optional
        Error of the t-tests: of each look (austerity) or of the whole decision (pocock; barker and penalty where they
        fall back on it).
    delta : float, optional
        Error of a whole decision under the concentration bounds.
    looks : Schedule, optional
        When to look.

    Raises
    ------
    InputError
        For an unknown name, a setting the test does not have, or a value out of range.
    """
    given = {"epsilon": epsilon, "delta": delta, "looks": looks}
    settings = {key: value for key, value in given.items() if value is not None}
    if name in _T_TESTS:
        make, known = _T_TESTS[name], {"epsilon", "looks"}
    elif name in _NOISE_TESTS:
        make, known = _NOISE_TESTS[name], {"epsilon", "looks"}
    elif name in _BOUNDS:
        make, known = _BOUNDS[name], {"delta", "looks"}
    elif name == "exact":
        make, known = Exact, set()
    else:
        raise InputError(f"unknown test '{name}': take one of {', '.join(TEST_NAMES)}")
    for key in settings:
        if key not in known:
            raise InputError(f"the {name} test takes no {key}: leave it out")
    return make(**settings)


@lru_cache(maxsize=64)
def pocock_critical_value(epsilon: float, n: tuple[int, ...]) -> float:
    """Critical value c with P(|Z_k| > c at some look but the last) = 2 epsilon (see `Pocock`).

    Parameters
    ----------
    epsilon : float
        In (0, 1); from 0.5 on the critical value is 0.
    n : tuple of int
        Units at each look, at least two looks, the last being the size of the population.
    """
    if epsilon >= 0.5:
        return 0.0
    early = np.array(n[:-1], float)
    times = early / (n[-1] - early)
    correlations = np.sqrt(times[:-1] / times[1:])

    def excess(critical: float) -> float:
        return _crossing_probability(critical, correlations) - 2 * epsilon

    from scipy.optimize import brentq

    # A single look needs the normal quantile, and K looks no more than an error K times smaller at each.
    low, high = -float(ndtri(epsilon)), -float(ndtri(epsilon / early.size))
    if early.size == 1:
        return low
    if epsilon < _SMALLEST_SOLVED:
        return high
    return float(brentq(excess, low - 1e-6, high + 1e-6, xtol=1e-8))


def _crossing_probability(critical: float, correlations: FloatArray) -> float:
    """P(|Z_k| > critical for some k) of a Gaussian Markov chain of standard normals with these correlations.

    The density of Z_k on the event that nothing crossed before is carried from look to look by quadrature.
    """
    narrowest = float(np.sqrt(1 - correlations.max() ** 2)) if correlations.size else 1.0
    nodes, weights = np.polynomial.legendre.leggauss(40 + int(8 * critical / narrowest))
    nodes, weights = critical * nodes, critical * weights
    density = _normal_density(nodes)
    for rho in correlations:
        width = np.sqrt(1 - rho**2)
        density = _normal_density((nodes[:, None] - rho * nodes) / width) @ (weights * density) / width
    return 1 - float(weights @ density)


def _normal_density(z: FloatArray) -> FloatArray:
    density: FloatArray = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    return density


def _t_table(n: IntArray, tail: float) -> Table:
    """Looks at which Student's t statistic exceeds its quantile of the given upper tail probability."""
    early, n_units = n[:-1].astype(float), float(n[-1])
    # an upper tail of 1/2 or more asks for no distance at all
    quantile = np.maximum(-stdtrit(early - 1, tail), 0.0)
    correction = np.sqrt(1 - (early - 1) / (n_units - 1)) if early.size else early
    return Table(n, np.append(quantile * correction / np.sqrt(early), 0.0), np.zeros(n.size))


def _closed(n: IntArray, scale: FloatArray, offset: FloatArray) -> Table:
    """The table whose last look decides in any case."""
    return Table(n, np.append(scale[:-1], 0.0), np.append(offset[:-1], 0.0))


def _looks(schedule: Schedule, n_units: int, *, at_least: int = 1) -> IntArray:
    _check_units(n_units)
    n = schedule.looks(n_units)
    if n[0] < min(at_least, n_units):
        raise InputError(f"the first look must have at least {at_least} blocks for a standard deviation, not {n[0]}")
    return n


def _spend(delta: float, n_looks: int) -> FloatArray:
    """Share of delta for each look: (p - 1) / (p k^p) with p = 2, which sums to less than delta."""
    return delta / (2 * np.arange(1.0, n_looks + 1) ** 2)


def _rho(n: IntArray) -> FloatArray:
    """The gain from drawing without replacement (Bardenet and Maillard 2015)."""
    few, n_units = n.astype(np.float64), float(n[-1])
    return np.where(few <= n_units / 2, 1 - (few - 1) / n_units, (1 - few / n_units) * (1 + 1 / few))


def _divisor_n(n: IntArray) -> FloatArray:
    """Turns a standard deviation with divisor n - 1 into one with divisor n."""
    few = n.astype(np.float64)
    factor: FloatArray = np.sqrt((few - 1) / few)
    return factor


def _check_units(n_units: int) -> None:
    if n_units < 1:
        raise InputError("there are no observations to decide with")


def _check_level(what: str, value: float, *, zero: bool = False) -> None:
    if not (0 < value < 1 or (zero and value == 0)):
        hint = " (0 is exact Metropolis-Hastings)" if zero else ""
        raise InputError(f"{what} must lie between 0 and 1{hint}, not be {value}")
