"""Pareto-smoothed importance sampling by the installed ArviZ, for leave-one-out cross-validation."""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import numpy as np
import scipy

from stansub.output import convergence
from stansub.output.inference_data import arviz_module, build, container
from stansub.types import FloatArray


class Pointwise(NamedTuple):
    """Leave-one-out values of single observations, each of shape (n,)."""

    elpd: FloatArray
    """Log predictive density of each observation given the others."""
    p: FloatArray
    """Effective number of parameters: the log predictive density given all observations, less ``elpd``."""
    pareto_k: FloatArray
    """Shape of the generalised Pareto distribution that smooths the tail of the importance ratios. It is -inf for an
    observation with the same log likelihood in all draws, which has no influence on them.
    """


def good_k(n_samples: int) -> float:
    """Return the Pareto k up to which estimates from ``n_samples`` draws are reliable (Vehtari et al. 2024)."""
    return min(1 - 1 / math.log10(n_samples), 0.7)


def relative_efficiency(draws: FloatArray) -> float:
    """Return the mean over quantities of ESS per draw, as in ArviZ; 1 for a single chain.

    Parameters
    ----------
    draws : ndarray, shape (chain, draw, quantity)
    """
    if len(draws) < 2:
        return 1.0
    return float(convergence.ess_mean(draws).mean() / (draws.shape[0] * draws.shape[1]))


def psis_loo(log_lik: FloatArray, efficiency: float) -> Pointwise:
    """Estimate each observation's log predictive density given the others, by PSIS (Vehtari et al. 2017).

    Parameters
    ----------
    log_lik : ndarray, shape (chain, draw, n)
    efficiency : float
        ESS per draw.
    """
    flat = log_lik.reshape(-1, log_lik.shape[2])
    elpd, pareto_k = flat[0].copy(), np.full(flat.shape[1], -np.inf)
    moving = np.flatnonzero(np.ptp(flat, axis=0) > 0)
    if moving.size:
        tree = build(posterior={}, sample_stats={}, log_likelihood={"log_lik": log_lik[:, :, moving]}, attrs={})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # large values of k are counted in the result
            found = arviz_module().loo(container(tree), pointwise=True, reff=efficiency)
        # ArviZ 0.x calls it loo_i.
        elpd[moving] = (found["elpd_i"] if hasattr(found, "elpd_i") else found["loo_i"]).values
        pareto_k[moving] = found["pareto_k"].values
    lppd = scipy.special.logsumexp(flat, axis=0) - np.log(len(flat))
    return Pointwise(elpd, lppd - elpd, pareto_k)
