"""Stopping rules that account for the noise of the estimated log ratio instead of making it negligible."""

from __future__ import annotations

from dataclasses import dataclass

from stansub import _loop
from stansub.acceptance.correction import correction
from stansub.acceptance.looks import Geometric, Schedule, Table
from stansub.acceptance.ranges import Range
from stansub.acceptance.stopping import Guarantee, StoppingRule, check_level
from stansub.acceptance.student import Pocock
from stansub.errors import InputError

# The noise must be measured first. If it is small, as with control variates, 10 blocks suffice. If it is larger, looks
# are rare, because each look may stop at a noise that is small by chance.
NOISE_LOOKS = Geometric(first=10, growth=1.5)
# A first look at fewer blocks estimates the noise too badly.
_LEAST_MEASURED = 5
# Beyond this, the error of the correction distribution is no longer small beside that of the measured noise.
_MOST_NOISE = 1.2
# If reaching the noise level would take a larger share of the blocks than this, the fallback test decides.
_NOISE_SHARE = 0.5


@dataclass(frozen=True, kw_only=True)
class _Noise(StoppingRule):
    """Base of the tests that account for the noise of the estimate.

    The estimate x of the log ratio from n of the M blocks is treated as normal with standard error
    s = M sd / sqrt(n) * sqrt(1 - (n - 1) / (M - 1)). The test decides at the first look at which s is at most ``noise``
    (with fewer than 20 blocks, n / 20 of it). The number of blocks depends on s alone; a dependence on x would violate
    detailed balance. If more than half of the blocks would be needed, Pocock's test with ``epsilon`` continues from the
    blocks drawn.

    The remaining error comes from s being an estimate. On normal blocks of any variance, the log ratio is in effect off
    by at most 2.2 % of itself with ``noise`` = 1 and by 1.3 % with 0.5 (from simulating the looks of the default
    schedule; Barker's test is the better of the two).

    Raises
    ------
    InputError
        If ``noise`` is not in (0, 1.2], ``epsilon`` is not in (0, 1), the first look has fewer than 5 units, or there
        are more looks than `MAX_POCOCK_LOOKS`.
    """

    noise: float = 1.0
    epsilon: float = 0.005
    looks: Schedule = NOISE_LOOKS
    counts_noise = True
    fits_looks = True

    def __post_init__(self) -> None:
        check_level("epsilon", self.epsilon)
        if not 0 < self.noise <= _MOST_NOISE:
            raise InputError(f"noise must be above 0 and at most {_MOST_NOISE}, not {self.noise}")
        if self.looks.looks(2 * _LEAST_MEASURED)[0] < _LEAST_MEASURED:
            raise InputError(f"the first look needs at least {_LEAST_MEASURED} blocks to measure the noise")

    def table(self, n_units: int, level: float | None = None) -> Table:
        """Return the looks and Pocock's critical values at them."""
        return Pocock(epsilon=self.epsilon, looks=self.looks).table(n_units, level)

    def guarantee(self, source: Range | None) -> Guarantee:
        return Guarantee.ASYMPTOTIC


@dataclass(frozen=True, kw_only=True)
class Barker(_Noise):
    """Barker's acceptance probability with a noisy log ratio (Seita, Pan, Chen and Canny 2017).

    A proposal is accepted with Barker's probability 1 / (1 + exp(-log ratio)) instead of Metropolis': when the log
    ratio plus a standard logistic number is positive. The estimate x already contains a normal part of variance s^2.
    The test adds a normal part of variance noise^2 - s^2 and a number from the correction distribution
    (`stansub.acceptance.correction.correction`), so that the sum is logistic. More noise means fewer blocks and a worse
    correction: the distribution function is met to within 1e-9 with ``noise`` = 0.8, 1e-7 with 1 and 3e-5 with 1.2.
    With the default of 1 the log ratio is met to within 2e-6 up to 4 and 3e-5 up to 8, far better than the error from
    the measured s. Where Metropolis accepts nearly every proposal, Barker accepts half.
    """

    name = "barker"

    def noise_rule(self) -> _loop.NoiseRule:
        corrected = correction(self.noise)
        return _loop.BarkerRule(self.noise, _NOISE_SHARE, corrected.points, corrected.bounds)


@dataclass(frozen=True, kw_only=True)
class Penalty(_Noise):
    """Metropolis with a penalty for the noise of the log ratio (Ceperley and Dewing 1999).

    A proposal is accepted with probability min(1, exp(x - u)). If the variance s^2 is known, the penalty u = s^2 / 2
    gives detailed balance exactly. If it is estimated from n blocks, the penalty is
    s^2/2 + s^4 / (4 (n + 1)) + s^6 / (3 (n + 1) (n + 3)) + ..., which makes exp(-u) an unbiased estimate of exp(-s^2 /
    2) and converges for s^2 < n / 4. Of proposals as likely as the state, a share 2 Phi(-s / 2) is accepted: 0.62 at
    the default noise. Less noise takes more blocks.
    """

    name = "penalty"

    def noise_rule(self) -> _loop.NoiseRule:
        return _loop.PenaltyRule(self.noise, _NOISE_SHARE)
