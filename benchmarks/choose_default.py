"""How small must epsilon be? Each t-test against a long exact run of the same chains, in Monte Carlo standard errors.

python benchmarks/choose_default.py stan_models/logistic.stan data.json --iter-sampling 20000

For each test: share of the data used a decision, passes over the data evaluated a step, audited error, smallest ESS,
largest |z| of the posterior means, and the ratio of posterior standard deviations to the exact run's: mean over the
parameters with its standard error, and the two most extreme ones. An unbiased test has |z| below 3 or so and a ratio
of 1 within two standard errors.
"""

from __future__ import annotations

import argparse
import time

import arviz as az
import numpy as np
from numpy.typing import NDArray

import stansub
from stansub.output import inference_data

TESTS = [
    stansub.Pocock(epsilon=0.1),
    stansub.Pocock(epsilon=0.05),
    stansub.Pocock(epsilon=0.02),
    stansub.Pocock(epsilon=0.01),
    stansub.Pocock(epsilon=0.005),
    stansub.Austerity(epsilon=0.05),
    stansub.Austerity(epsilon=0.01),
    stansub.Austerity(epsilon=0.001),
]


def moments(draws: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Mean, its MCSE, sd and its MCSE of each parameter, from draws of shape (chain, draw, dim)."""
    columns = [draws[:, :, k] for k in range(draws.shape[2])]
    return (
        draws.mean(axis=(0, 1)),
        np.array([float(az.mcse(column, method="mean")) for column in columns]),
        draws.std(axis=(0, 1), ddof=1),
        np.array([float(az.mcse(column, method="sd")) for column in columns]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--iter-warmup", type=int, default=3000)
    parser.add_argument("--iter-sampling", type=int, default=20_000)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", help="positions in the list of tests, separated by commas")
    options = parser.parse_args()
    compiled = stansub.compile_model(options.model)
    chosen = [TESTS[int(k)] for k in options.tests.split(",")] if options.tests else TESTS
    exact = None
    print(f"{'test':<34}{'share':>8}{'passes':>8}{'wrong':>16}{'min ESS':>9}{'s':>7}{'max|z|':>8}   sd ratio")
    for test in [stansub.Exact(), *chosen]:
        began = time.perf_counter()
        idata = stansub.sample(
            compiled,
            options.data,
            chains=options.chains,
            iter_warmup=options.iter_warmup,
            iter_sampling=options.iter_sampling,
            seed=options.seed + (test != stansub.Exact()),
            test=test,
            audit=0.0 if test.exact else 0.05,
            proposal="adaptive-metropolis",
            control_variates=0,
            show_progress=False,
        )
        seconds = time.perf_counter() - began
        draws = idata["unconstrained_posterior"]["theta"].to_numpy()
        ess = min(float(az.ess(draws[:, :, k])) for k in range(draws.shape[2]))
        stats, facts = idata["sample_stats"], inference_data.attrs(idata)
        n = facts["n_observations"]
        steps = options.chains * options.iter_sampling
        share = float(stats["n_obs_used"].mean()) / n
        passes = float(np.sum(facts["n_obs_evaluated"])) / n / steps
        wrong = f"{int(np.sum(facts['n_audit_wrong']))}/{int(np.sum(facts['n_audited']))}"
        mean, mean_error, sd, sd_error = moments(draws)
        name = test.name if test.exact else f"{test.name} epsilon={test.epsilon}"
        line = f"{name:<34}{share:>8.1%}{passes:>8.2f}{wrong:>16}{ess:>9.0f}{seconds:>7.0f}"
        if exact is None:
            exact = mean, mean_error, sd, sd_error
            print(line, flush=True)
            continue
        z = (mean - exact[0]) / np.hypot(mean_error, exact[1])
        ratio = sd / exact[2]
        # The parameters' standard deviations are estimated from the same draws: their errors are not independent.
        error = np.mean(np.hypot(sd_error / sd, exact[3] / exact[2]))
        extremes = f"({ratio.min():.2f} to {ratio.max():.2f})"
        print(f"{line}{np.abs(z).max():>8.1f}   {ratio.mean():.3f} +- {error:.3f} {extremes}", flush=True)


if __name__ == "__main__":
    main()
