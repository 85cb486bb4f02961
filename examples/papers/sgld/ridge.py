"""L1-regularised regression with one coefficient (Korattikara et al. 2014, section 5.4): data, posterior, truth."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtri_exp

import stansub
from stansub.kernels.sgld import MiniBatches, Sgld

Array = NDArray[np.float64]
Places = NDArray[np.int32]

N, PRECISION, RATE, ALPHA = 10_000, 3.0, 4950.0, 5e-6


@dataclass(frozen=True)
class Ridge:
    """The posterior of theta: p(y | x, theta) of precision lambda = 3, prior exp(-lambda_0 |theta|), lambda_0 = 4950.

    Its density has a kink at 0. As the log likelihood is quadratic, it is that of a normal distribution on either side.

    Attributes
    ----------
    x, y : ndarray, shape (n,)
    """

    x: Array
    y: Array
    _xx: Array = field(init=False, repr=False)
    _xy: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_xx", self.x**2)
        object.__setattr__(self, "_xy", self.x * self.y)

    def log_density(self, theta: Array) -> float:
        """Of the prior."""
        return -RATE * abs(float(theta[0]))

    def log_density_gradient(self, theta: Array) -> Array:
        """Of the prior; 0 at the kink."""
        return -RATE * np.sign(theta)

    def log_lik(self, theta: Array, which: Places) -> Array:
        """Log likelihoods of observations, without what does not depend on theta."""
        return PRECISION * (self._xy[which] - 0.5 * theta[0] * self._xx[which]) * theta[0]

    def log_lik_gradient(self, theta: Array, which: Places) -> Array:
        """Their gradients, shape (n, 1)."""
        return PRECISION * (self._xy[which] - theta[0] * self._xx[which])[:, np.newaxis]

    def subset_log_density_gradient(self, theta: Array, which: Places) -> tuple[float, Array]:
        """Gradient of the prior and some observations, as mini-batches ask for it; nobody asks for the value."""
        slope = PRECISION * (self._xy[which].sum() - theta * self._xx[which].sum())
        return 0.0, slope + self.log_density_gradient(theta)

    def target(self, block_size: int = 1) -> stansub.FunctionFactors:
        """As what is sampled."""
        return stansub.FunctionFactors(
            ["theta"],
            len(self.x),
            self.log_lik,
            log_density=self.log_density,
            log_lik_gradient=self.log_lik_gradient,
            log_density_gradient=self.log_density_gradient,
            block_size=block_size,
            name="ridge",
        )

    def langevin(self) -> Sgld:
        """Langevin moves of step size alpha with gradients of a twentieth of the data (eq. 13)."""
        blocks = np.ones(len(self.x), np.int32)
        return Sgld(MiniBatches(self, blocks, size=len(self.x) // 20), np.sqrt([[ALPHA]]))

    def log_posterior(self, theta: Array) -> Array:
        """At several values, up to a constant."""
        fit = PRECISION * (self._xy.sum() - 0.5 * theta * self._xx.sum()) * theta
        return np.asarray(fit - RATE * np.abs(theta))

    def slope(self, theta: Array) -> Array:
        """Of the log posterior at several values; it jumps at 0."""
        return np.asarray(PRECISION * (self._xy.sum() - theta * self._xx.sum()) - RATE * np.sign(theta))

    def quantiles(self, p: Array) -> Array:
        """Of the posterior: normal on either side of 0, in closed form.

        On a side the log density is that of a normal distribution of precision lambda sum x^2 whose mean is moved by
        the prior's slope; their parts beyond 0 are joined so that the density is continuous there.
        """
        sd = (PRECISION * self._xx.sum()) ** -0.5
        means = (PRECISION * self._xy.sum() + RATE * np.array([1.0, -1.0])) * sd**2
        # log of the integral of exp(log posterior) over each side, the density at 0 being 1
        sides = means**2 / (2 * sd**2) + log_ndtr(np.array([-1.0, 1.0]) * means / sd)
        share = 1 / (1 + np.exp(sides[1] - sides[0]))
        left, right = np.log(p / share), np.log((1 - p) / (1 - share))
        with np.errstate(invalid="ignore"):
            below = means[0] + sd * ndtri_exp(np.minimum(left, 0) + log_ndtr(-means[0] / sd))
            above = means[1] - sd * ndtri_exp(np.minimum(right, 0) + log_ndtr(means[1] / sd))
        return np.where(p <= share, below, above)


def simulated(rng: np.random.Generator, n: int = N) -> Ridge:
    """y = 0.5 x + noise of variance 1 / 3, x evenly spaced in [-1, 1].

    With these x the likelihood's slope at 0 and the prior's differ by a hundredth of either, as in the paper's figure,
    but only while least squares give 0.5: so what the noise has of x is taken away.
    """
    x, noise = np.linspace(-1, 1, n), rng.normal(0, np.sqrt(1 / PRECISION), n)
    noise -= x * (x @ noise) / (x @ x)
    return Ridge(x, 0.5 * x + noise)


def uncorrected(proposal: Sgld, n: int, rng: np.random.Generator, start: float = 0.0) -> Array:
    """Draws of SGLD whose moves are all accepted (Welling and Teh 2011), shape (n,)."""
    draws, position = np.empty(n), np.array([start])
    alpha = float(proposal.cholesky[0, 0]) ** 2
    for row in range(n):
        slope = proposal.batches.draw(rng)(position)
        position = position + 0.5 * alpha * slope + np.sqrt(alpha) * rng.standard_normal(1)
        draws[row] = position[0]
    return draws
