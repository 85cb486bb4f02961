"""Joint-distribution tests of kernels (Geweke 2004): parameters and data together must keep their distribution.

Parameters from the prior and data given them are a draw of the joint distribution. From there, a chain alternates
between the kernel for the parameters and new data given the parameters. It keeps the joint distribution if the kernel
leaves the posterior invariant for all data. Chains that start at independent draws are stationary from their first
step, so their means are independent and identically distributed, and no autocorrelation needs estimating.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from scipy import stats

from stansub.acceptance.rules import Exact
from stansub.acceptance.stopping import StoppingRule
from stansub.kernels.recipes import Recipe
from stansub.run.context import ChainContext
from stansub.target.functions import FunctionFactors
from stansub.tuning.adapt import adapter_of
from stansub.types import FloatArray

D = TypeVar("D")


@dataclass(frozen=True, kw_only=True)
class Joint(Generic[D]):
    """Model from which parameters and data can be drawn."""

    prior: Callable[[np.random.Generator], FloatArray]
    """From a generator to unconstrained parameters, shape (dim,)."""
    data: Callable[[np.random.Generator, FloatArray], D]
    """From a generator and parameters to data given them."""
    posterior: Callable[[D], FunctionFactors]
    """From data to the posterior of the parameters."""
    functions: Callable[[FloatArray, D], FloatArray]
    """From parameters and data to the values compared, shape (k,), such as moments of the parameters and of their
    distance from an estimate by the data. The latter is more sensitive: it shows too wide a posterior at every step.
    """

    def values(self, rng: np.random.Generator) -> FloatArray:
        """Return the functions at one draw."""
        theta = self.prior(rng)
        return np.asarray(self.functions(theta, self.data(rng, theta)), np.float64)


@dataclass(frozen=True)
class JointTest:
    """Result of a joint-distribution test."""

    z: FloatArray
    """Shape (k,): difference of the means of each function between chains and independent draws, in standard errors."""
    degrees: float
    """Degrees of freedom of the chains' standard errors."""

    @property
    def p_value(self) -> float:
        """Return the p-value of the largest difference, adjusted by Bonferroni."""
        return float(min(1.0, len(self.z) * 2 * stats.t.sf(np.abs(self.z).max(), self.degrees)))


def joint_distribution_test(
    model: Joint[D],
    kernel: Recipe,
    rng: np.random.Generator,
    *,
    test: StoppingRule | None = None,
    n_chains: int = 100,
    n_steps: int = 50,
    n_draws: int = 20_000,
) -> JointTest:
    """Test whether a kernel leaves the posteriors of a model invariant.

    Parameters
    ----------
    kernel : Recipe
        Its proposals must be fixed: those that adapt stay as they start.
    test : StoppingRule, optional
        Test of the decisions; exact by default. With another test, the result includes its error if it is large enough.
    n_chains, n_steps : int
        Chains, and steps of each; a step applies the kernel, then draws new data.
    n_draws : int
        Independent draws.

    Raises
    ------
    ValueError
        If there are fewer than two chains.
    """
    if n_chains < 2:
        raise ValueError("a joint-distribution test needs at least two chains")
    direct = np.array([model.values(rng) for _ in range(n_draws)])
    means = np.array([_chain(model, kernel, test or Exact(), rng, n_steps) for _ in range(n_chains)])
    variance = means.var(axis=0, ddof=1) / n_chains + direct.var(axis=0, ddof=1) / n_draws
    difference = means.mean(axis=0) - direct.mean(axis=0)
    # Constant functions agree, or differ by infinitely many standard errors.
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(difference == 0, 0.0, difference / np.sqrt(variance))
    return JointTest(z, n_chains - 1)


def _chain(model: Joint[D], recipe: Recipe, rule: StoppingRule, rng: np.random.Generator, n_steps: int) -> FloatArray:
    """Return the means of the functions along a chain that starts at a draw of the joint distribution."""
    theta = model.prior(rng)
    total: FloatArray = np.zeros(1)
    for _ in range(n_steps):
        data = model.data(rng, theta)
        factors = model.posterior(data)
        context = ChainContext(factors, rule, 0, has_gradients=factors.has_gradients)
        kernel = recipe.bind(context)
        params = adapter_of(recipe.leaves(context.names), context.target.dim, context.adapter).final()
        state, _ = kernel.step(rng, kernel.init(theta), params)
        theta = state.position
        total = total + np.asarray(model.functions(theta, data), np.float64)
    return total / n_steps
