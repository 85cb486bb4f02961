"""Surrogate transitions of models with latent classes, beside Gibbs sampling of the classes."""

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


# Answers of yes and no of persons of unknown class; no prior distinguishes the classes.
ITEMS = """
data { int C; int N; int J; array[N, J] int<lower=0, upper=1> y; }
parameters { simplex[C] share; array[C] vector<lower=0, upper=1>[J] p; }
model {
  for (c in 1 : C) p[c] ~ beta(2, 2);
  for (n in 1 : N) {
    vector[C] terms = log(share);
    for (c in 1 : C) terms[c] += bernoulli_lpmf(y[n] | p[c]);
    target += log_sum_exp(terms);
  }
}
"""
N_PERSONS, N_ITEMS, N_CLASSES = 4_000, 8, 3
TRUTH = np.array([[0.1, 0.2, 0.15, 0.3, 0.1, 0.2, 0.9, 0.8], [0.8, 0.9, 0.7, 0.8, 0.2, 0.1, 0.2, 0.3]])
TRUTH = np.vstack([TRUTH, 1 - TRUTH[0, ::-1]])


def gibbs_of_items(y: NDArray[np.int64], n_draws: int, seed: int) -> Any:
    """Return draws of shares and probabilities given the classes, and of these given all else, from the truth."""
    rng, chains = np.random.default_rng(seed), []
    for _ in range(4):
        p, share, kept = TRUTH, np.full(N_CLASSES, 1 / N_CLASSES), []
        for step in range(n_draws + 200):
            terms = np.log(share) + y @ np.log(p.T) + (1 - y) @ np.log1p(-p.T)
            kind = np.argmax(terms + rng.gumbel(size=terms.shape), axis=1)
            counts = np.eye(N_CLASSES)[kind]
            share = rng.dirichlet(1 + counts.sum(axis=0))
            p = rng.beta(2 + counts.T @ y, 2 + counts.T @ (1 - y))
            if step >= 200:
                kept.append((share, p))
        chains.append([np.array(each) for each in zip(*kept, strict=True)])
    share, p = (np.array(each) for each in zip(*chains, strict=True))
    return SimpleNamespace(posterior=az.convert_to_dataset({"share": share, "p": p}))


def in_order(idata: Any) -> Any:
    """Return the draws with the classes in the order of the truth."""
    p = idata.posterior["p"].to_numpy()
    order = np.argmin(np.abs(p.mean(axis=(0, 1)) - TRUTH[:, np.newaxis]).sum(axis=2), axis=1)
    assert sorted(order) == list(range(N_CLASSES))
    found = {"share": idata.posterior["share"].to_numpy()[..., order], "p": p[:, :, order]}
    return SimpleNamespace(posterior=az.convert_to_dataset(found))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::stansub.DrawsWarning")
def test_chains_are_about_one_of_the_copies_of_a_mode(tmp_path: Path) -> None:
    """If classes can be exchanged, chains started about three of the six copies, and R-hat was above 2."""
    rng = np.random.default_rng(2)
    y = (rng.random((N_PERSONS, N_ITEMS)) < TRUTH[rng.choice(N_CLASSES, N_PERSONS, p=[0.5, 0.3, 0.2])]).astype(int)
    program = tmp_path / "items.stan"
    program.write_text(ITEMS)
    data = {"C": N_CLASSES, "N": N_PERSONS, "J": N_ITEMS, "y": y}
    idata = stansub.sample(program, data, seed=1, iter_sampling=4_000, show_progress=False)
    facts, names = inference_data.attrs(idata), ["share", "p"]
    assert facts["guarantee"] == "exact"
    assert "the elements of p and share change places" in facts["warnings"]
    assert max(float(az.rhat(idata.posterior)[name].max()) for name in names) < 1.02
    truth, found = gibbs_of_items(y, 4_000, 3), in_order(idata)
    assert max(float(az.rhat(truth.posterior)[name].max()) for name in names) < 1.02
    assert max(z_scores(found, truth, names)) < 5
    assert max(z_scores(found, truth, names, wider=1.1)) > 8
