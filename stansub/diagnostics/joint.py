"""Joint-distribution tests of kernels (Geweke 2004): parameters and data together must keep their distribution.

Parameters from the prior and data given them are a draw of the joint distribution. A chain that from there draws in
turn parameters by the kernel and data given the parameters stays in it if the kernel leaves the posterior as it is,
whatever the data. Chains that begin at independent draws are stationary from their first step on, so that their means
are independent and identically distributed, and no autocorrelation need be estimated.
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
from stansub.run.bench import Bench
from stansub.target.functions import FunctionFactors
from stansub.tuning.adapt import adapter_of
from stansub.types import FloatArray

D = TypeVar("D")


@dataclass(frozen=True, kw_only=True)
class Joint(Generic[D]):
    """A model as a way to draw parameters and data.

    Attributes
    ----------
    prior : callable
        Of a generator: unconstrained parameters, shape (dim,).
    data : callable
        Of a generator and parameters: data given them.
    posterior : callable
        Of data: the posterior of the parameters.
    functions : callable
        Of parameters and data: what is compared, shape (k,), such as moments of the parameters, and of their distance
        from an estimate by the data, which tells more: too wide a posterior shows there at every step.
    """

    prior: Callable[[np.random.Generator], FloatArray]
    data: Callable[[np.random.Generator, FloatArray], D]
    posterior: Callable[[D], FunctionFactors]
    functions: Callable[[FloatArray, D], FloatArray]

    def values(self, rng: np.random.Generator) -> FloatArray:
        """The functions at one draw."""
        theta = self.prior(rng)
        return np.asarray(self.functions(theta, self.data(rng, theta)), np.float64)


@dataclass(frozen=True)
class JointTest:
    """What came of it.

    Attributes
    ----------
    z : ndarray, shape (k,)
        Difference of the means of each function, of chains and of independent draws, in standard errors.
    degrees : float
        Degrees of freedom of the chains' standard errors.
    """

    z: FloatArray
    degrees: float

    @property
    def p_value(self) -> float:
        """Of the largest difference, among so many (Bonferroni)."""
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
    """Test whether a kernel leaves the posteriors of a model as they are.

    Parameters
    ----------
    model : Joint
    kernel : Recipe
        Proposals that learn stay as they begin: give those that are fixed.
    rng : Generator
    test : StoppingRule, optional
        By which decisions are taken; exact by default. Another shows its own error where it is large enough to be seen.
    n_chains, n_steps : int
        Chains, and steps of each; a step is one of the kernel, then new data.
    n_draws : int
        Independent draws.

    Raises
    ------
    ValueError
        With fewer than two chains.
    """
    if n_chains < 2:
        raise ValueError("a joint-distribution test needs at least two chains")
    direct = np.array([model.values(rng) for _ in range(n_draws)])
    means = np.array([_chain(model, kernel, test or Exact(), rng, n_steps) for _ in range(n_chains)])
    variance = means.var(axis=0, ddof=1) / n_chains + direct.var(axis=0, ddof=1) / n_draws
    difference = means.mean(axis=0) - direct.mean(axis=0)
    # Functions that never vary agree or differ by an infinity of standard errors.
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(difference == 0, 0.0, difference / np.sqrt(variance))
    return JointTest(z, n_chains - 1)


def _chain(model: Joint[D], recipe: Recipe, rule: StoppingRule, rng: np.random.Generator, n_steps: int) -> FloatArray:
    """Means of the functions along a chain that begins at a draw of the joint distribution."""
    theta = model.prior(rng)
    total: FloatArray = np.zeros(1)
    for _ in range(n_steps):
        data = model.data(rng, theta)
        factors = model.posterior(data)
        bench = Bench(factors, rule, 0, has_gradients=factors.has_gradients)
        kernel = recipe.bind(bench)
        params = adapter_of(recipe.leaves(bench.names), bench.target.dim, bench.adapter).final()
        state, _ = kernel.step(rng, kernel.init(theta), params)
        theta = state.position
        total = total + np.asarray(model.functions(theta, data), np.float64)
    return total / n_steps
