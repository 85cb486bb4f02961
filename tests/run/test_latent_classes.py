"""Surrogate transitions of a model with latent classes, beside Gibbs sampling of the classes."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import arviz as az
import numpy as np
import pytest
from agreement import z_scores
from numpy.typing import NDArray

import stansub
from stansub.output import inference_data

# Dawid and Skene's model of answers of several raters about observations of unknown class.
RATERS = """
data { int K; int N; int J; array[N, J] int<lower=1, upper=K> y; vector[K] alpha; array[K] vector[K] beta; }
parameters { simplex[K] share; array[J, K] simplex[K] answer; }
model {
  share ~ dirichlet(alpha);
  for (j in 1 : J) for (k in 1 : K) answer[j, k] ~ dirichlet(beta[k]);
  for (n in 1 : N) {
    vector[K] terms = log(share);
    for (j in 1 : J) for (k in 1 : K) terms[k] += log(answer[j, k, y[n, j]]);
    target += log_sum_exp(terms);
  }
}
"""
N, J, K = 2_000, 9, 3
ALPHA, BETA = np.full(K, 3.0), 1 + 4 * np.eye(K)


def answers() -> NDArray[np.int64]:
    """Return answers from 0, shape (N, J)."""
    rng = np.random.default_rng(1)
    kind = rng.choice(K, N, p=[0.5, 0.3, 0.2])
    given = np.array([[rng.dirichlet(1 + 3 * np.eye(K)[k]) for k in range(K)] for _ in range(J)])
    return np.array([[rng.choice(K, p=given[j, kind[n]]) for j in range(J)] for n in range(N)])


def gibbs(y: NDArray[np.int64], n_draws: int, seed: int) -> Any:
    """Return draws of shares and answers given the classes, and of these given all else (Dawid and Skene 1979)."""
    rng, chains = np.random.default_rng(seed), []
    one_hot = np.eye(K)[y]
    for _ in range(4):
        kind, kept = rng.choice(K, N), []
        answer = np.array([[rng.dirichlet(BETA[k]) for k in range(K)] for _ in range(J)])
        for step in range(n_draws + 200):
            if step:
                counts = np.einsum("nk,njv->jkv", np.eye(K)[kind], one_hot)
                gammas = rng.standard_gamma(counts + BETA)
                answer = gammas / gammas.sum(axis=2, keepdims=True)
            share = rng.dirichlet(ALPHA + np.bincount(kind, minlength=K))
            terms = np.log(share) + np.einsum("njv,jkv->nk", one_hot, np.log(answer))
            kind = np.argmax(terms + rng.gumbel(size=terms.shape), axis=1)
            if step >= 200:
                kept.append((share, answer))
        chains.append([np.array(each) for each in zip(*kept, strict=True)])
    share, answer = (np.array(each) for each in zip(*chains, strict=True))
    return SimpleNamespace(posterior=az.convert_to_dataset({"share": share, "answer": answer}))


@pytest.mark.slow
def test_draws_agree_with_those_given_the_classes(tmp_path: Path) -> None:
    """The likelihood has six equal maxima, of which the prior prefers one."""
    program, y = tmp_path / "raters.stan", answers()
    program.write_text(RATERS)
    data = {"K": K, "N": N, "J": J, "y": y + 1, "alpha": ALPHA, "beta": BETA}
    idata = stansub.sample(program, data, seed=3, iter_sampling=4_000, show_progress=False)
    facts = inference_data.attrs(idata)
    assert facts["settings"]["proposal"] == "surrogate"
    assert facts["guarantee"] == "exact"
    truth, names = gibbs(y, 4_000, 2), ["share", "answer"]
    assert max(float(az.rhat(truth.posterior)[name].max()) for name in names) < 1.02
    assert max(z_scores(idata, truth, names)) < 5
    assert max(z_scores(idata, truth, names, wider=1.1)) > 8
