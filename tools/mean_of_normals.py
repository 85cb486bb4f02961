"""Sample a posterior of numpy functions, which needs no compiler: the mean of 10,000 normal observations."""

import numpy as np

import stansub

y = np.random.default_rng(1).normal(0.7, 1.0, 10_000)


def log_lik(theta, which):
    return -0.5 * (y[which] - theta[0]) ** 2


def log_lik_gradient(theta, which):
    return (y[which] - theta[0])[:, np.newaxis]


if __name__ == "__main__":
    posterior = stansub.FunctionFactors(["mu"], len(y), log_lik, log_lik_gradient=log_lik_gradient)
    draws = stansub.sample(posterior, None, chains=2, iter_sampling=2000, seed=1, show_progress=False)
    mean, sd = float(draws.posterior["mu"].mean()), float(draws.posterior["mu"].std())
    print(f"mu: mean {mean:.4f} (observations: {y.mean():.4f}), sd {sd:.4f}")
    if abs(mean - y.mean()) > 0.002 or not 0.009 < sd < 0.011:
        raise SystemExit("these are not draws of the posterior")
