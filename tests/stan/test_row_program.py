"""Likelihoods of one observation as programs: what the text says, derivatives, and bounds by interval arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import comb, factorial
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

from stansub import _loop
from stansub.stan.likelihood import LikelihoodSplit
from stansub.stan.observations import observation
from stansub.stan.observations.observation import follow
from stansub.stan.observations.predictors import _dense, compare
from stansub.stan.observations.row_program import _tail_rounding, in_program, tail_rounding
from stansub.stan.observations.rowwise import NotFollowedError, affine, apply, data, select
from stansub.stan.sparse import sparse_predictors
from stansub.stan.syntax import parse
from stansub.target.blocks import Blocks
from stansub.target.programs import Code, ProgramFamily
from stansub.target.remainders import LinearPredictors, NoPredictorsError

Array = NDArray[np.float64]

N = 40
PROGRAM = """
functions {{ {functions} }}
data {{ int<lower=0> N; matrix[N, 2] x; array[N] int y; vector[N] z; vector[N] w; array[N] int c; array[N] int g; }}
transformed data {{
  matrix[N, 2] xc;
  for (k in 1:2) xc[, k] = x[, k] - mean(x[, k]);
}}
parameters {{
  real a; vector[2] b; real<lower=0> s; real<lower=0, upper=1> p; ordered[2] o; vector[3] r; real<lower=0> t;
}}
model {{ a ~ normal(0, 1); {model} }}
"""
ZERO_INFLATED = """
real zi_lpmf(int y, real eta, real p) {
  if (y == 0) {
    return log_sum_exp(bernoulli_lpmf(1 | p), bernoulli_lpmf(0 | p) + poisson_log_lpmf(0 | eta));
  }
  return bernoulli_lpmf(0 | p) + poisson_log_lpmf(y | eta);
}"""
PARTIAL = """
real part_lpdf(array[] real z, int start, int end, matrix x, real a, vector b, real s) {
  real total = 0;
  int n = end - start + 1;
  vector[n] mu = rep_vector(0.0, n);
  mu += a + x[start:end] * b;
  total += normal_lpdf(z | mu, s);
  return total;
}"""


def made(model: str, functions: str = "") -> tuple[LinearPredictors, dict[str, Any]]:
    """What the text of a program shows, and its data."""
    rng = np.random.default_rng(1)
    values = {
        "N": N,
        "x": rng.standard_normal((N, 2)),
        "y": rng.poisson(1.5, N),
        "z": rng.uniform(0.1, 0.9, N),
        "w": rng.uniform(0.5, 2, N),
        "c": rng.integers(-1, 2, N),
        "g": rng.integers(1, 4, N),
    }
    program = parse(PROGRAM.format(model=model, functions=functions))
    return _dense(*in_program(follow(program, values, N).term, N)), values


class Point:
    """Parameters at unconstrained ones."""

    def __init__(self, theta: Array, values: dict[str, Any]) -> None:
        self.a, self.b, self.s, self.p = theta[0], theta[1:3], np.exp(theta[3]), special.expit(theta[4])
        self.o = np.array([theta[5], theta[5] + np.exp(theta[6])])
        self.r, self.t = theta[7:10], np.exp(theta[10])
        x = values["x"]
        self.eta = self.a + (x - x.mean(0)) @ self.b


def _of_matrices(factor: Array, error: Array, weight: float, mean: Array) -> float:
    cov = factor @ factor.T
    normal = stats.multivariate_normal(mean, np.linalg.inv(cov))
    squared = error @ np.linalg.inv(cov) @ error
    return (weight - 0.5) * squared + np.linalg.slogdet(cov)[1] + normal.logpdf(error) + np.linalg.inv(factor)[1, 0]


def _positive_qr(x: Array) -> tuple[Array, Array]:
    q, r = np.linalg.qr(x)
    signs = np.sign(np.diag(r))
    return q * signs, signs[:, np.newaxis] * r


def _log_q(t: Point, k: int) -> Array:
    return np.asarray(special.log_expit(t.eta - t.o[k]))


def _log_p(t: Point, k: int) -> Array:
    return np.asarray(special.log_expit(t.o[k] - t.eta))


def _normal_mass(low: Array, high: Array) -> Array:
    """A normal probability, from the tail that is nearer."""
    ends = np.where(low > 0, [-high, -low], [low, high])
    return np.asarray(special.ndtr(ends[1]) - special.ndtr(ends[0]))


JUMPS = """for (n in 1:N) {
  real m = 0; int i = 0; if (y[n] > 2) continue;
  for (k in 1:3) { if (k == g[n]) continue; if (k > y[n] + 1) break; m += k * a;
    for (l in 1:2) { if (c[n] > 0) break; m += w[n] * b[1]; } m += z[n]; }
  while (i < g[n]) { i += 1; if (i == 2 && c[n] < 0) break; m += b[2]; }
  for (k in 1:g[n]) { if (k > y[n]) { m += 1; continue; } if (c[n] == 0) break; m += k; }
  z[n] ~ normal(m, s);
}"""


def jumps(t: Point, d: dict[str, Any]) -> Array:
    """The log likelihoods of `JUMPS`, one after the other."""
    found = np.zeros(N)
    for n in range(N):
        y, z, w, c, g = (d[name][n] for name in "yzwcg")
        if y > 2:
            continue
        kept = [k for k in (1, 2, 3) if k != g and k <= y + 1]
        mean = sum(kept) * t.a + len(kept) * z + (c <= 0) * 2 * len(kept) * w * t.b[0]
        mean += (min(g, 1) if c < 0 else g) * t.b[1]
        for k in range(1, g + 1):
            if k <= y and c == 0:
                break
            mean += 1 if k > y else k
        found[n] = stats.norm.logpdf(z, mean, t.s)
    return found


LINES: dict[str, tuple[str, Callable[[Point, dict[str, Any]], Array]]] = {
    "observations_in_the_second_dimension": (
        "array[2, N] vector[3] q; array[2, N] real u; for (n in 1:N) { for (k in 1:3) { q[1, n, k] = a * k * w[n]; "
        "q[2, n][k] = 1 - q[1, n, k]; } u[ : , n] = {z[n], w[n]}; } for (n in 1:N) { if (c[n] > 0) q[1, n] *= 2; "
        "q[2, n, g[n]] += b[1]; z[n] ~ normal(q[1, n, 2] + q[2, n, g[n]], sum(u[ : , n])); } "
        "target += normal_lpdf(u[1] | to_vector(q[1, : , 3]), s);",
        lambda t, d: (
            stats.norm.logpdf(
                d["z"],
                t.a * d["w"] * (2 * np.where(d["c"] > 0, 2, 1) - d["g"]) + 1 + t.b[0],
                d["z"] + d["w"],
            )
            + stats.norm.logpdf(d["z"], 3 * t.a * d["w"] * np.where(d["c"] > 0, 2, 1), t.s)
        ),
    ),
    "more_terms_than_arguments": (  # each a function of the same two parameters
        "for (n in 1:N) for (k in 1:14) target += log1m_inv_logit(b[1] * z[n] ^ k + b[2] * w[n] ^ k);",
        lambda t, v: sum(special.log_expit(-t.b[0] * v["z"] ** k - t.b[1] * v["w"] ** k) for k in range(1, 15)),
    ),
    "gaussian": ("z ~ normal(a + xc * b, s);", lambda t, d: stats.norm.logpdf(d["z"], t.eta, t.s)),
    "temporary": (
        "real eta; int k; array[2] real ps; for (n in 1:N) { eta = a + xc[n] * b; k = 1; if (c[n] > 0) k = 2; "
        "for (j in 1:2) ps[j] = (j == k ? log(p) : log1m(p)) + normal_lpdf(z[n] | j * eta, s); "
        "target += log_sum_exp(ps); } for (n in 1:N) { eta = r[g[n]]; target += eta; }",
        lambda t, d: (
            np.logaddexp(
                np.log(np.where(d["c"] > 0, 1 - t.p, t.p)) + stats.norm.logpdf(d["z"], t.eta, t.s),
                np.log(np.where(d["c"] > 0, t.p, 1 - t.p)) + stats.norm.logpdf(d["z"], 2 * t.eta, t.s),
            )
            + t.r[d["g"] - 1]
        ),
    ),
    "members": (
        "for (n in 1:N) { array[2] int of = {g[n], (g[n] + y[n]) % 3 + 1}; matrix[2, 3] m = [r', 2 * r']; "
        "row_vector[2] twice = m[2, of]; z[n] ~ normal(sum(r[of]) + twice[2], s); }",
        lambda t, d: stats.norm.logpdf(d["z"], t.r[d["g"] - 1] + 3 * t.r[(d["g"] + d["y"]) % 3], t.s),
    ),
    "teams": (
        "array[N, 2] int team; for (n in 1:N) team[n] = {g[n], 1 + (y[n] > 1)}; "
        "for (n in 1:N) z[n] ~ normal(sum(r[team[n]]), s);",
        lambda t, d: stats.norm.logpdf(d["z"], t.r[d["g"] - 1] + t.r[(d["y"] > 1).astype(int)], t.s),
    ),
    "sizes": (
        "for (n in 1:N) { vector[g[n] + 1] lp; "
        "for (k in 0:g[n]) lp[k + 1] = poisson_log_lpmf(y[n] + k | a) + k * log(p); target += log_sum_exp(lp); }",
        lambda t, d: np.logaddexp.reduce(
            [
                np.where(k <= d["g"], stats.poisson.logpmf(d["y"] + k, np.exp(t.a)) + k * np.log(t.p), -np.inf)
                for k in range(4)
            ]
        ),
    ),
    "segments": (
        "for (n in 1:N) z[n] ~ normal(sum(r[g[n]:]) + sum(segment(r, 1 + (y[n] > 1), g[n] - (g[n] > 2))), s);",
        lambda t, d: stats.norm.logpdf(
            d["z"],
            np.cumsum(t.r[::-1])[3 - d["g"]]
            + np.where(
                d["y"] > 1, np.cumsum(t.r[1:])[np.minimum(d["g"], 2) - 1], np.cumsum(t.r)[np.minimum(d["g"], 2) - 1]
            ),
            t.s,
        ),
    ),
    "slices": (
        "for (n in 1:N) { int end = g[n] == 2 ? 2 : 3; z[n] ~ normal(r[g[n]:end][1] + sum(r[g[n]:end]), s); }",
        lambda t, d: stats.norm.logpdf(
            d["z"], t.r[d["g"] - 1] + np.select([d["g"] == 1, d["g"] == 2], [t.r.sum(), t.r[1]], t.r[2]), t.s
        ),
    ),
    "own_cutpoints": (
        "vector[4] cuts = append_row(o, 1 + 2 * o); for (n in 1:N) { int from = g[n] > 1 ? 3 : 1;"
        " c[n] + 2 ~ ordered_logistic(a, cuts[from:from + 1]); }",
        lambda t, d: np.log(
            -np.diff(special.expit(t.a - np.where(d["g"][:, None] > 1, 1 + 2 * t.o, t.o)), prepend=1, append=0, axis=1)[
                np.arange(N), d["c"] + 1
            ]
        ),
    ),
    "own_element": (
        "for (n in 1:N) { vector[3] v = r; array[2] int of = {y[n], g[n]}; v[g[n]] = b[1]; v[2] += max(of); "
        "z[n] ~ normal(v[1] + 2 * v[2] + 3 * v[3], s); }",
        lambda t, d: stats.norm.logpdf(
            d["z"],
            np.where(d["g"][:, None] == [1, 2, 3], t.b[0], t.r) @ [1, 2, 3] + 2 * np.maximum(d["y"], d["g"]),
            t.s,
        ),
    ),
    "powers": (
        "for (n in 1:N) z[n] ~ normal(a^3 + s^-2 + t^0.5 + 2^a + w[n]^1.5 + s^w[n], t);",
        lambda t, d: stats.norm.logpdf(
            d["z"], t.a**3 + t.s**-2 + t.t**0.5 + 2**t.a + d["w"] ** 1.5 + t.s ** d["w"], t.t
        ),
    ),
    "logarithms_of_counts": (
        "for (n in 1:N) target += w[n] * lbeta(s, t) + lchoose(y[n] + 2 + s, t);",
        lambda t, d: (
            d["w"] * special.betaln(t.s, t.t)
            + special.gammaln(d["y"] + 3 + t.s)
            - special.gammaln(t.t + 1)
            - special.gammaln(d["y"] + 3 + t.s - t.t)
        ),
    ),
    "sizes_of_containers": (
        "array[2] int d = dims(x); z ~ normal(a * d[2] + b[1] * d[1] + cols(x) + rows(b), s);",
        lambda t, d: stats.norm.logpdf(d["z"], 2 * t.a + N * t.b[0] + 4, t.s),
    ),
    "log_softmax": (
        "for (n in 1:N) { vector[3] l = log_softmax(r * w[n]); target += l[g[n]]; }",
        lambda t, d: special.log_softmax(np.outer(d["w"], t.r), axis=1)[np.arange(N), d["g"] - 1],
    ),
    "parts_of_the_observations": (
        "vector[N] mu = a + xc * b; z[1:10] ~ normal(mu[1:10] .* w[1:10], s); z[11:N] ~ normal(2 * mu[11:N], t);",
        lambda t, d: np.where(
            np.arange(N) < 10,
            stats.norm.logpdf(d["z"], t.eta * d["w"], t.s),
            stats.norm.logpdf(d["z"], 2 * t.eta, t.t),
        ),
    ),
    "common_factors": (
        "vector[2] q = s * b; z ~ normal(a + xc * q, t);",
        lambda t, d: stats.norm.logpdf(d["z"], t.a + t.s * (t.eta - t.a), t.t),
    ),
    "orthogonal": (
        "matrix[N, 2] q = qr_thin_Q(x); matrix[2, 2] f = qr_thin_R(x); z ~ normal(q * b + f[1, 2] * a, s);",
        lambda t, d: stats.norm.logpdf(
            d["z"], _positive_qr(d["x"])[0] @ t.b + _positive_qr(d["x"])[1][0, 1] * t.a, t.s
        ),
    ),
    "weights": (
        "for (n in 1:N) target += w[n] * normal_lpdf(z[n] | a + xc[n] * b, s);",
        lambda t, d: d["w"] * stats.norm.logpdf(d["z"], t.eta, t.s),
    ),
    "weights in a product": (
        "vector[N] each; for (n in 1:N) each[n] = normal_lpdf(z[n] | a + xc[n] * b, s); target += w' * each;",
        lambda t, d: d["w"] * stats.norm.logpdf(d["z"], t.eta, t.s),
    ),
    "a product with parameters": (
        "vector[N] eta = a + xc * b; row_vector[N] own = (eta .* w)'; target += own * z - sum(exp(eta));",
        lambda t, d: t.eta * d["w"] * d["z"] - np.exp(t.eta),
    ),
    "matrices": (
        "matrix[2, 2] f = [[s, 0], [a, t]]; matrix[2, 2] v = tcrossprod(f);"
        " for (n in 1:N) { vector[2] e = x[n]' - b; target += -0.5 * dot_self(mdivide_left_tri_low(f, e))"
        " + log_determinant(v) + quad_form(inverse_spd(v), e) * w[n] + multi_normal_prec_lpdf(e | r[1:2], v)"
        " + inverse(f)[2, 1]; }",
        lambda t, d: np.array(
            [
                _of_matrices(np.array([[t.s, 0], [t.a, t.t]]), x - t.b, w, t.r[:2])
                for x, w in zip(d["x"], d["w"], strict=True)
            ]
        ),
    ),
    "inverse trigonometric functions": (
        "for (n in 1:N) target += square(z[n] - asin(2 * p - 1) * w[n]) + acos(inv_logit(a) - p)"
        " + acosh(1 + s * w[n]) * atan2(a, w[n]) + atan2(w[n], a) * t;",
        lambda t, d: (
            (d["z"] - np.arcsin(2 * t.p - 1) * d["w"]) ** 2
            + np.arccos(special.expit(t.a) - t.p)
            + np.arccosh(1 + t.s * d["w"]) * np.arctan2(t.a, d["w"])
            + np.arctan2(d["w"], t.a) * t.t
        ),
    ),
    "zero_inflated": (
        "vector[N] mu = rep_vector(0.0, N); mu += a + xc * b; for (n in 1:N) target += zi_lpmf(y[n] | mu[n], p);",
        lambda t, d: np.where(
            d["y"] == 0,
            np.log(t.p + (1 - t.p) * np.exp(-np.exp(t.eta))),
            np.log1p(-t.p) + stats.poisson.logpmf(d["y"], np.exp(t.eta)),
        ),
    ),
    "beta": (
        "vector[N] mu = inv_logit(a + xc * b); target += beta_lpdf(z | mu * s, (1 - mu) * s);",
        lambda t, d: stats.beta.logpdf(d["z"], special.expit(t.eta) * t.s, special.expit(-t.eta) * t.s),
    ),
    "mixture": (
        "for (n in 1:N) target += log_mix(p, normal_lpdf(z[n] | o[1], s), normal_lpdf(z[n] | o[2], t));",
        lambda t, d: np.log(
            t.p * stats.norm.pdf(d["z"], t.o[0], t.s) + (1 - t.p) * stats.norm.pdf(d["z"], t.o[1], t.t)
        ),
    ),
    "components": (
        "for (n in 1:N) { array[2] real ps; ps[1] = log(p) + normal_lpdf(z[n] | a, s); "
        "ps[2] = log1m(p) + normal_lpdf(z[n] | o[2], s); target += log_sum_exp(ps); }",
        lambda t, d: np.log(t.p * stats.norm.pdf(d["z"], t.a, t.s) + (1 - t.p) * stats.norm.pdf(d["z"], t.o[1], t.s)),
    ),
    "censored": (
        "for (n in 1:N) { if (c[n] == 0) { target += normal_lpdf(z[n] | a + xc[n] * b, s); } else if (c[n] == 1) "
        "{ target += normal_lccdf(z[n] | a + xc[n] * b, s); } "
        "else { target += normal_lcdf(z[n] | a + xc[n] * b, s); } }",
        lambda t, d: np.select(
            [d["c"] == 0, d["c"] == 1],
            [stats.norm.logpdf(d["z"], t.eta, t.s), stats.norm.logsf(d["z"], t.eta, t.s)],
            stats.norm.logcdf(d["z"], t.eta, t.s),
        ),
    ),
    "doses": (
        "for (n in 1:N) { real h = pow(y[n], t); z[n] ~ normal(a + exp(r[g[n]]) * h / (pow(exp(b[1]), t) + h), s); }",
        lambda t, d: stats.norm.logpdf(
            d["z"], t.a + np.exp(t.r[d["g"] - 1]) * d["y"] ** t.t / (np.exp(t.b[0]) ** t.t + d["y"] ** t.t), t.s
        ),
    ),
    "log_doses": (
        "for (n in 1:N) z[n] ~ normal(a + b[1] * inv_logit(t * (log(y[n]) - b[2])), s);",
        lambda t, d: stats.norm.logpdf(
            d["z"], t.a + t.b[0] * d["y"] ** t.t / (np.exp(t.b[1] * t.t) + d["y"] ** t.t), t.s
        ),
    ),
    "intervals": (
        "for (n in 1:N) target += log_diff_exp(normal_lcdf(z[n] + w[n] | a + xc[n] * b, s), "
        "normal_lcdf(z[n] | a + xc[n] * b, s));",
        lambda t, d: np.log(_normal_mass((d["z"] - t.eta) / t.s, (d["z"] + d["w"] - t.eta) / t.s)),
    ),
    "intervals_from_0": (
        "for (n in 1:N) target += log_diff_exp(lognormal_lcdf(y[n] + w[n] | exp(a) * r[g[n]], s), "
        "lognormal_lcdf(y[n] | exp(a) * r[g[n]], s));",
        lambda t, d: np.log(
            _normal_mass(
                *((special.xlogy(1, each) - np.exp(t.a) * t.r[d["g"] - 1]) / t.s for each in (d["y"], d["y"] + d["w"]))
            )
        ),
    ),
    "logistic_intervals": (
        "for (n in 1:N) target += log_diff_exp(logistic_lcdf(z[n] + w[n] | a + xc[n] * b, s), "
        "logistic_lcdf(z[n] | a + xc[n] * b, s));",
        lambda t, d: np.log(stats.logistic.cdf(d["z"] + d["w"], t.eta, t.s) - stats.logistic.cdf(d["z"], t.eta, t.s)),
    ),
    "weibull": (
        "for (n in 1:N) { if (c[n] == 0) { target += weibull_lpdf(z[n] | s, exp(a + xc[n] * b)); } "
        "else { target += weibull_lccdf(z[n] | s, exp(a + xc[n] * b)); } }",
        lambda t, d: np.where(
            d["c"] == 0,
            stats.weibull_min.logpdf(d["z"], t.s, scale=np.exp(t.eta)),
            stats.weibull_min.logsf(d["z"], t.s, scale=np.exp(t.eta)),
        ),
    ),
    "truncated": (
        "for (n in 1:N) z[n] ~ normal(a, s) T[0, 1];",
        lambda t, d: (
            stats.norm.logpdf(d["z"], t.a, t.s) - np.log(stats.norm.cdf(1, t.a, t.s) - stats.norm.cdf(0, t.a, t.s))
        ),
    ),
    "groups": (
        "vector[3] u = s * r; for (n in 1:N) target += bernoulli_logit_lpmf(c[n] > 0 | a + u[g[n]] * w[n]);",
        lambda t, d: stats.bernoulli.logpmf(d["c"] > 0, special.expit(t.a + t.s * t.r[d["g"] - 1] * d["w"])),
    ),
    "student_t": (
        "z ~ student_t(t + 1, a + xc * b, s);",
        lambda t, d: stats.t.logpdf(d["z"], t.t + 1, t.eta, t.s),
    ),
    "ordered": (
        "for (n in 1:N) target += ordered_logistic_lpmf(g[n] | x[n, 1] * b[1], o);",
        lambda t, d: np.log(
            np.diff(special.expit(np.array([-np.inf, *t.o, np.inf]) - d["x"][:, :1] * t.b[0]), axis=1)[
                np.arange(N), d["g"] - 1
            ]
        ),
    ),
    "categories": (
        "for (n in 1:N) { vector[3] mu = [0, a, x[n, 2] * b[2]]'; target += categorical_logit_lpmf(g[n] | mu); }",
        lambda t, d: special.log_softmax(
            np.stack([np.zeros(N), np.full(N, t.a), d["x"][:, 1] * t.b[1]], axis=1), axis=1
        )[np.arange(N), d["g"] - 1],
    ),
    "exgaussian": (
        "target += exp_mod_normal_lpdf(z | a + xc * b, s, inv(t));",
        lambda t, d: stats.exponnorm.logpdf(d["z"], t.t / t.s, t.eta, t.s),
    ),
    "one_of_several": (
        # The probability rounds to 1, and 1 less that to 0.
        "for (n in 1:N) target += normal_lpdf(z[n] | a, s)"
        " + bernoulli_lpmf(c[n] > 0 | 1 - pow(1 - inv_logit(20 + a), 3));",
        lambda t, d: (
            np.where(d["c"] > 0, np.log1p(-(special.expit(-20 - t.a) ** 3)), 3 * special.log_expit(-20 - t.a))
            + stats.norm.logpdf(d["z"], t.a, t.s)
        ),
    ),
    "reduce_sum": (
        "target += reduce_sum(part_lupdf, to_array_1d(z), 1, xc, a, b, s);",
        lambda t, d: stats.norm.logpdf(d["z"], t.eta, t.s),
    ),
    "neg_binomial": (
        "target += neg_binomial_2_log_lpmf(y | a + xc * b, s);",
        lambda t, d: stats.nbinom.logpmf(d["y"], t.s, t.s / (t.s + np.exp(t.eta))),
    ),
    "gamma": (
        "target += gamma_lpdf(z | s, s ./ exp(a + xc * b));",
        lambda t, d: stats.gamma.logpdf(d["z"], t.s, scale=np.exp(t.eta) / t.s),
    ),
    "skew_normal": (
        "target += skew_normal_lpdf(z | a, s, b[1]);",
        lambda t, d: stats.skewnorm.logpdf(d["z"], t.b[0], t.a, t.s),
    ),
    "cauchit": (
        "for (n in 1:N) target += bernoulli_lpmf(c[n] > 0 | atan(a + xc[n] * b) / pi() + 0.5);",
        lambda t, d: stats.bernoulli.logpmf(d["c"] > 0, np.arctan(t.eta) / np.pi + 0.5),
    ),
    "own_sum": (
        "target += own_lpdf(z | a + xc * b, s);",
        # Where it is written with operators, the constant is left out.
        lambda t, d: stats.norm.logpdf(d["z"], t.eta, t.s) + (d["z"] <= 0.5) * 0.5 * np.log(2 * np.pi),
    ),
    "jumps": (JUMPS, jumps),
    "while": (
        "for (n in 1:N) target += sequential_lpmf(g[n] | a + xc[n] * b, o);",
        lambda t, d: np.select(
            [d["g"] == 1, d["g"] == 2],
            [_log_p(t, 0), _log_q(t, 0) + _log_p(t, 1)],
            _log_q(t, 0) + _log_q(t, 1),
        ),
    ),
    "adjacent": (
        "for (n in 1:N) { vector[3] p = append_row(0, cumulative_sum(s * (x[n, 1] * b[1] - o))); "
        "target += p[g[n]] - log_sum_exp(p); }",
        lambda t, d: special.log_softmax(
            np.cumsum(np.insert(t.s * (d["x"][:, :1] * t.b[0] - t.o), 0, 0, axis=1), axis=1), axis=1
        )[np.arange(N), d["g"] - 1],
    ),
    "inverse_gaussian": (
        "target += inverse_gaussian_lpdf(z | exp(a + xc * b), s);",
        # A sum of data alone is left out.
        lambda t, d: stats.invgauss.logpdf(d["z"], np.exp(t.eta) / t.s, scale=t.s) + 1.5 * np.log(d["z"]),
    ),
    "number_of_observations": (
        "target += -N * log(s) - 0.5 * N * log(2 * pi()) - 0.5 * dot_self(z - (a + xc * b)) / s^2;",
        lambda t, d: stats.norm.logpdf(d["z"], t.eta, t.s),
    ),
    "function_of_the_number_of_observations": (
        "z ~ normal(a + xc * b, s / sqrt(1.0 * N));",
        lambda t, d: stats.norm.logpdf(d["z"], t.eta, t.s / np.sqrt(N)),
    ),
    "truncated_counts": (
        "for (n in 1:N) target += poisson_lpmf(y[n] | exp(a)) - poisson_lcdf(g[n] + 5 | exp(a));",
        lambda t, d: stats.poisson.logpmf(d["y"], np.exp(t.a)) - stats.poisson.logcdf(d["g"] + 5, np.exp(t.a)),
    ),
    "choice_sets": (
        "for (n in 1:N) g[n] ~ categorical_logit(r[1:g[n]] * w[n]);",
        lambda t, d: (
            t.r[d["g"] - 1] * d["w"]
            - np.log(np.cumsum(np.exp(np.outer(d["w"], t.r)), axis=1)[np.arange(N), d["g"] - 1])
        ),
    ),
    "scales_of_different_lengths": (
        "for (n in 1:N) { int last = g[n] > 2 ? 2 : 1; g[n] ~ ordered_logistic(x[n, 1] * b[1], o[1:last]); }",
        lambda t, d: np.log(
            np.diff(special.expit(np.array([-np.inf, *t.o, np.inf]) - d["x"][:, :1] * t.b[0]), axis=1)[
                np.arange(N), d["g"] - 1
            ]
            + np.where(d["g"] == 2, special.expit(d["x"][:, 0] * t.b[0] - t.o[1]), 0)
        ),
    ),
    "above_zero": (
        "for (n in 1:N) (y[n] + 1) ~ neg_binomial_2(t, s) T[1, ];",
        lambda t, d: (
            stats.nbinom.logpmf(d["y"] + 1, t.s, t.s / (t.s + t.t)) - stats.nbinom.logsf(0, t.s, t.s / (t.s + t.t))
        ),
    ),
    "successes_up_to": (
        "for (n in 1:N) target += binomial_lcdf(g[n] | 8, p);",
        lambda t, d: stats.binom.logcdf(d["g"], 8, t.p),
    ),
    "vectors": (
        "array[N] vector[2] v; array[N] vector[2] m; matrix[2, 2] L = [[s, 0], [b[1], t]]; "
        "for (n in 1:N) { v[n] = [z[n], w[n]]'; m[n] = [a + xc[n] * b, r[1]]'; } "
        "target += multi_normal_cholesky_lpdf(v | m, L);",
        lambda t, d: (
            stats.norm.logpdf(d["z"], t.eta, t.s)
            + stats.norm.logpdf(d["w"], t.r[0] + t.b[0] * (d["z"] - t.eta) / t.s, t.t)
        ),
    ),
    "covariance": (
        "for (n in 1:N) { vector[2] v = [z[n], w[n]]'; "
        "target += multi_normal_lpdf(v | [a, r[1]]', [[s^2, s * b[1]], [s * b[1], b[1]^2 + t^2]]); }",
        lambda t, d: (
            stats.norm.logpdf(d["z"], t.a, t.s) + stats.norm.logpdf(d["w"], t.r[0] + t.b[0] * (d["z"] - t.a) / t.s, t.t)
        ),
    ),
    "sum_of_covariances": (
        "matrix[2, 2] S = add_diag(tcrossprod([[s], [b[1]]]), [0, square(t)]'); array[N] vector[2] v; "
        "for (n in 1:N) v[n] = [z[n], w[n]]'; v ~ multi_normal([a, r[1]]', crossprod([[1, 0], [0, 1]]) * S);",
        lambda t, d: (
            stats.norm.logpdf(d["z"], t.a, t.s) + stats.norm.logpdf(d["w"], t.r[0] + t.b[0] * (d["z"] - t.a) / t.s, t.t)
        ),
    ),
    "scaled_columns": (
        "matrix[2, 2] L = [[s, 0], [b[1], t]]; vector[2] u = diag_post_multiply(L, [t, s]') * o; "
        "z ~ normal(diag_post_multiply(x, exp(b)) * u, s);",
        lambda t, d: stats.norm.logpdf(
            d["z"], d["x"] * np.exp(t.b) @ [t.s * t.t * t.o[0], t.b[0] * t.t * t.o[0] + t.t * t.s * t.o[1]], t.s
        ),
    ),
    "scaled_rows": (
        "vector[N] e = exp(x * b); z ~ normal(diag_pre_multiply(e, diag_post_multiply(x, r[1:2])) * b, s);",
        lambda t, d: stats.norm.logpdf(d["z"], np.exp(d["x"] @ t.b) * (d["x"] * t.r[:2] @ t.b), t.s),
    ),
    "basis_functions": (
        "matrix[N, 2] f = sin(diag_post_multiply(rep_matrix(2 * z, 2), linspaced_vector(2, 1, 2))); "
        "vector[2] d = s * exp(-t * linspaced_vector(2, 1, 2)); "
        "y ~ poisson_log_glm(append_col(f, w), a, append_row(d .* b, r[1]));",
        lambda t, d: stats.poisson.logpmf(
            d["y"],
            np.exp(
                t.a
                + np.sin(2 * d["z"][:, np.newaxis] * [1, 2]) @ (t.s * np.exp(-t.t * np.array([1, 2])) * t.b)
                + d["w"] * t.r[0]
            ),
        ),
    ),
    "columns": (
        "vector[N] e = exp(x[, 1] * a); matrix[2, 3] k = append_col([[s, r[1]], [0, t]], b); "
        "z ~ normal(append_col(append_col(e, x), w) * append_row(append_col(1, k[1, 1:2])', k[2, 3]), s);",
        lambda t, d: stats.norm.logpdf(
            d["z"], np.exp(d["x"][:, 0] * t.a) + d["x"] @ [t.s, t.r[0]] + d["w"] * t.b[1], t.s
        ),
    ),
    "counts_of_categories": (
        "vector[2] c = [s, t * exp(a)]'; "
        "for (n in 1:N) { array[2] int v = {y[n], g[n]}; v ~ dirichlet_multinomial(c); }",
        lambda t, d: stats.betabinom.logpmf(d["y"], d["y"] + d["g"], t.s, t.t * np.exp(t.a)),
    ),
    "functions_of_data": (
        "vector[N] m = a + rows_dot_self(x) * norm1(b) + asin(z / 9) * 4; "
        "real c = trace(inverse_spd([[2, 0], [0, 4]])) + 2 + sum(ones_row_vector(3)) + "
        "linspaced_array(2, 0, 1)[2] + ones_int_array(2)[1] + zeros_array(2)[1] + zeros_int_array(2)[1]; "
        "w ~ normal(m + c, s);",
        lambda t, d: stats.norm.logpdf(
            d["w"], t.a + (d["x"] ** 2).sum(1) * np.abs(t.b).sum() + np.arcsin(d["z"] / 9) * 4 + 0.75 + 7, t.s
        ),
    ),
    "category_specific": (
        "matrix[2, 2] k = [[b[1], b[2]], [r[1], r[2]]]; matrix[N, 2] e = x * k; "
        "for (n in 1:N) target += categorical_logit_lpmf(g[n] | append_row(0, e[n]'));",
        lambda t, d: special.log_softmax(np.insert(d["x"] @ np.array([t.b, t.r[:2]]), 0, 0, axis=1), axis=1)[
            np.arange(N), d["g"] - 1
        ],
    ),
    "repeated_columns_and_rows": (
        "matrix[3, 2] m = rep_matrix(r, 2) + rep_matrix(b', 3); for (n in 1:N) w[n] ~ normal(m[g[n], 1], s);",
        lambda t, d: stats.norm.logpdf(d["w"], t.r[d["g"] - 1] + t.b[0], t.s),
    ),
    "products_of_columns_and_rows": (
        "matrix[N, 2] e = z * b'; matrix[2, 3] m = b * r'; "
        "for (n in 1:N) target += normal_lpdf(w[n] | a + e[n, 1] - square(e[n, 2]) + m[2, 3], s);",
        lambda t, d: stats.norm.logpdf(d["w"], t.a + d["z"] * t.b[0] - (d["z"] * t.b[1]) ** 2 + t.b[1] * t.r[2], t.s),
    ),
    "functions_without_a_value": (
        "all_lp(w, a + xc * b, s); for (n in 1:N) { if (c[n] == 1) one_lp(z[n], p, t); }",
        lambda t, d: (
            stats.norm.logpdf(d["w"], t.eta, t.s)
            + np.where(d["c"] == 1, stats.norm.logpdf(d["z"], t.p, t.t) + t.p * d["z"], 0)
        ),
    ),
    "eleven_arguments": (
        "for (n in 1:N) w[n] ~ normal(a * z[n] + b[1] * b[2] + r[1] * r[2] * r[3] + p * o[1] * o[2], s + t);",
        lambda t, d: stats.norm.logpdf(
            d["w"], t.a * d["z"] + np.prod(t.b) + np.prod(t.r) + t.p * np.prod(t.o), t.s + t.t
        ),
    ),
}
OWN_SUM = """
real own_lpdf(vector y, vector mu, real s) {
  real found = 0;
  for (n in 1:rows(y)) {
    if (y[n] > 0.5) {
      found = found + normal_lpdf(y[n] | mu[n], s);
    } else {
      found = -0.5 * square((y[n] - mu[n]) / s) + found - log(s);
    }
  }
  return found;
}"""
RECURSION = """
real own_lpdf(vector y, real a, real s) {
  real found = 0;
  real level = 0;
  for (n in 1:rows(y)) {
    level = a * level + y[n];
    found += normal_lpdf(y[n] | level, s);
  }
  return found;
}"""
SEQUENTIAL = """
real sequential_lpmf(int y, real mu, vector thres) {
  int K = num_elements(thres);
  vector[K + 1] p;
  vector[K] q;
  int k = 1;
  while (k <= min(y, K)) {
    q[k] = log1m_inv_logit(thres[k] - mu);
    p[k] = log1m_exp(q[k]);
    for (kk in 1:(k - 1)) p[k] = p[k] + q[kk];
    k += 1;
  }
  if (y == K + 1) {
    p[K + 1] = sum(q);
  }
  return p[y];
}"""
INVERSE_GAUSSIAN = """
real inverse_gaussian_lpdf(vector y, vector mu, real shape) {
  return 0.5 * rows(y) * log(shape / (2 * pi())) - 1.5 * sum(log(y))
         - 0.5 * shape * dot_self((y - mu) ./ (mu .* sqrt(y)));
}"""
WITHOUT_A_VALUE = """
void one_lp(real z, real mu, real s) { z ~ normal(mu, s); target += mu * z; }
void all_lp(vector z, vector mu, real s) {
  vector[rows(z)] e = (z - mu) / s;
  target += std_normal_lpdf(e) - rows(z) * log(s);
}"""
FUNCTIONS = {
    "functions_without_a_value": WITHOUT_A_VALUE,
    "zero_inflated": ZERO_INFLATED,
    "reduce_sum": PARTIAL,
    "own_sum": OWN_SUM,
    "while": SEQUENTIAL,
    "inverse_gaussian": INVERSE_GAUSSIAN,
}


def points(k: int = 5) -> Array:
    return np.random.default_rng(2).uniform(-1, 1, (k, 11))


@pytest.mark.parametrize("name", LINES)
def test_the_text_gives_the_log_likelihood_of_each_observation(name: str) -> None:
    model, expected = LINES[name]
    found, values = made(model, FUNCTIONS.get(name, ""))
    for theta in points():
        truth = expected(Point(theta, values), values)
        assert np.allclose(found.log_lik(theta), truth, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", LINES)
def test_derivatives_are_those_of_the_log_likelihood(name: str) -> None:
    found, _ = made(LINES[name][0], FUNCTIONS.get(name, ""))
    family, step = found.family, 1e-5
    eta = found.at(points(1)[0])
    slopes, curves = family.derivatives((1, 2), eta)
    for k in range(len(eta)):
        move = step * (np.arange(len(eta)) == k)[:, np.newaxis]
        numeric = (family.log_lik(eta + move) - family.log_lik(eta - move)) / (2 * step)
        assert np.allclose(slopes[k], numeric, rtol=1e-6, atol=1e-6)
        (ahead,), (behind,) = (family.derivatives((1,), at) for at in (eta + move, eta - move))
        numeric = (ahead - behind) / (2 * step)
        assert np.allclose(curves[k], numeric, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", LINES)
def test_bounds_hold_and_are_not_far_off_on_small_boxes(name: str) -> None:
    """Against third derivatives at random points, from differences of Hessians; what cancels is not seen to."""
    found, _ = made(LINES[name][0], FUNCTIONS.get(name, ""))
    family, rng = found.family, np.random.default_rng(3)
    centre = found.at(points(1)[0])
    q, step = len(centre), 1e-4
    lengths = rng.uniform(0.01, 0.02, centre.shape)
    assert isinstance(family, ProgramFamily)
    bound = suprema(family.density, 3, family.data, centre, lengths, 2.0)
    assert np.isfinite(bound).all()
    sharp = np.zeros(N)
    for _ in range(30):
        at = centre + lengths * rng.uniform(-2, 2, centre.shape)
        each = np.zeros(N)
        for k in range(q):
            move = step * (np.arange(q) == k)[:, np.newaxis]
            (ahead,), (behind,) = (family.derivatives((2,), there) for there in (at + move, at - move))
            third = (ahead - behind) / (2 * step)
            each += np.einsum("abn,an,bn->n", np.abs(third), lengths, lengths) * lengths[k]
        assert (each <= bound * (1 + 1e-6) + 1e-8 * lengths.max() ** 2).all()
        sharp = np.maximum(sharp, each)
    assert family.largest(3, centre, lengths, 2.0).sum() < 6 * sharp.sum() + 1e-9


def error_of(family: Any, centre: Array, lengths: Array) -> Callable[[Array], Array]:
    """Of the expansion about the centre, with arguments so many lengths from it."""
    value, slopes, curves = family.derivatives((0, 1, 2), centre)

    def at(s: Array) -> Array:
        change = lengths * s
        expansion = value + (slopes * change).sum(0) + 0.5 * np.einsum("abn,an,bn->n", curves, change, change)
        return np.asarray(family.log_lik(centre + change) - expansion)

    return at


def in_boxes(shape: tuple[int, ...], radius: float, n: int) -> Iterator[Array]:
    """Corners of boxes, near and far, and places within."""
    rng = np.random.default_rng(4)
    for k in range(n):
        signs = rng.choice([-1.0, 1.0], shape)
        yield radius * (signs, 0.1 * signs, rng.uniform(-1, 1, shape), signs * rng.integers(0, 2, shape))[k % 4]


@pytest.mark.parametrize("name", LINES)
def test_errors_of_expansions_are_within_the_bounds_of_their_arguments(name: str) -> None:
    """On small and large boxes, and not far off on small ones."""
    found, _ = made(LINES[name][0], FUNCTIONS.get(name, ""))
    family, rng = found.family, np.random.default_rng(3)
    centre = found.at(points(1)[0])
    lengths = rng.uniform(0.01, 0.02, centre.shape)
    error_at, radii = error_of(family, centre, lengths), (1.0, 4.0)
    bounds = family.split(3, centre, lengths, radii) / 6
    for radius, bound in zip(radii, bounds, strict=True):
        sizes = np.zeros(N)
        for s in in_boxes(centre.shape, radius, 40 * len(centre)):
            error = np.abs(error_at(s))
            assert (error <= (bound * np.abs(s) ** 3).sum(0) * (1 + 1e-9) + 1e-11).all()
            far = np.abs(s).max(0)
            sizes = np.maximum(sizes, np.divide(error, far**3, out=np.zeros(N), where=far > 0.2))
        assert radius > 1 or bound.sum() < 4 * sizes.sum() + 1e-9
    alone = [family.split(3, centre, lengths, (radius,))[0] / 6 for radius in radii]
    np.testing.assert_array_equal(bounds, alone)
    np.testing.assert_allclose(6 * bounds[0].sum(0), family.largest(3, centre, lengths, radii[0]), rtol=1e-12)


@pytest.mark.parametrize("name", ["zero_inflated", "censored", "beta"])
def test_a_wrong_instruction_is_seen(name: str) -> None:
    """Each operation, sign and constant has a say in the log likelihood."""
    found, _ = made(LINES[name][0], FUNCTIONS.get(name, ""))
    theta = points(1)[0]
    eta, right = found.at(theta), found.log_lik(theta)
    family = found.family
    assert isinstance(family, ProgramFamily)
    code = family.code
    kinds = _loop.OPERATIONS
    blocks, near, refused = Blocks(N, 4), list(points(3)), 0
    terms = [found.sums(found.log_lik(one), blocks) for one in near]
    assert compare(found, blocks, near, terms, rounding=_tail_rounding).holds
    for at in range(len(code.codes)):
        wrong, values = code.codes.copy(), code.values.copy()
        kind = kinds[wrong[at, 0]]
        if kind == "constant":
            values[at] += 1e-6
        else:
            swaps = {
                "sum": "difference",
                "difference": "sum",
                "product": "sum",
                "data": "constant",
                "argument": "constant",
            }
            other = swaps.get(kind, "exp" if kind != "exp" else "inv_logit")
            wrong[at, 0] = kinds.index(other)
        changed = replace(family, code=Code(code.starts, wrong, values), _made=[])
        with np.errstate(all="ignore"):
            assert not np.allclose(changed.log_lik(eta), right, rtol=1e-9, atol=1e-9), (at, kind)
            # The proof sees changes between points, in which terms without parameters cancel.
            wrongly = replace(found, family=changed)
            changes = [one.log_lik(near[1]) - one.log_lik(near[0]) for one in (wrongly, found)]
            if not np.allclose(*changes, rtol=0, atol=1e-4):
                refused += 1
                assert not compare(wrongly, blocks, near, terms, rounding=_tail_rounding).holds, (at, kind)
    assert refused > len(code.codes) / 2


@pytest.mark.parametrize(
    ("model", "loses"),
    [
        ("for (n in 1:N) target += bernoulli_lpmf(c[n] > 0 | p + (1 - p) * inv_logit(a * xc[n, 1]));", True),
        ("for (n in 1:N) target += log(1 - p * inv_logit(a * xc[n, 1]));", True),
        ("for (n in 1:N) target += log1m_exp(-s - w[n]);", True),
        ("z ~ student_t(4, a, s);", False),
        ("for (n in 1:N) target += log(p * inv_logit(a * xc[n, 1]) + w[n]);", False),
    ],
)
def test_logarithms_of_1_less_a_probability_are_rounded(model: str, loses: bool) -> None:
    """Stan rounds the probability, which may be near 1."""
    found, _ = made(model)
    assert (tail_rounding(found.family) is not None) == loses


def test_rounding_of_variants_that_read_late_arguments() -> None:
    """Arguments and data are numbered apart from instructions."""
    lines = [("argument", 3, 0), ("exp", 0, 0)]
    codes = np.array([(_loop.OPERATIONS.index(name), a, b) for name, a, b in lines], np.int32)
    family = ProgramFamily(Code(np.array([0, 2], np.int32), codes, np.zeros(2)), 4, np.zeros((1, 5)))
    assert tail_rounding(family) is None


def test_groups_that_a_loop_compares_read_parameters_like_those_that_an_index_selects() -> None:
    """Ten groups with two parameters each, in branches; one argument has the parameter of the observation's group."""
    rng = np.random.default_rng(2)
    values = {"N": 200, "J": 10, "z": rng.standard_normal(200), "g": rng.integers(1, 11, 200)}
    head = "data { int N; int J; vector[N] z; array[N] int g; } parameters { vector[J] u; vector<lower=0>[J] s; }"
    each = "for (j in 1:J) for (n in 1:N) if (g[n] == j) z[n] ~ normal(u[j] * square(u[j]), s[j]);"
    family, arguments = in_program(follow(parse(f"{head} model {{ {each} }}"), values, 200).term, 200)
    assert len(arguments) == 2
    theta = rng.standard_normal((2, 20))
    found = [_dense(family, arguments).log_lik(at) for at in theta]
    own = values["g"] - 1
    right = [stats.norm.logpdf(values["z"], at[:10][own] ** 3, np.exp(at[10:][own])) for at in theta]
    np.testing.assert_allclose(found[1] - found[0], right[1] - right[0], rtol=1e-9, atol=1e-9)


ACROSS = "array[2, N] real q; for (n in 1:N) q[1, n] = a * z[n];"
REFUSED = {
    f"{ACROSS} z ~ normal(sum(q[{{1, 2}}]), s);": "elements of all observations are read together",
    f"{ACROSS} for (n in 1:N) z[n] ~ normal(q[1, N - n + 1], s);": "an observation reads the value of another",
    f"{ACROSS} for (n in 1:N) q[1, N - n + 1] = a; z ~ normal(q[1, 1], s);": "carries a value from one",
    "z ~ normal(a, sqrt(sum(exp(a * w))));": "a function of a sum over observations is not supported",
    "segment(z, 1, c) ~ normal(a, s);": r"`c` is not a single known number$",
    "target += poisson_binomial_lpmf(y | rep_vector(p, N));": "poisson_binomial",
    "row_vector[4] v = append_col(b', o'); z ~ normal(v[1], s);": "may be rows or columns",
    "target += student_t_lcdf(w | s, a, 1); z ~ normal(a, s);": "student_t_lcdf of parameters is not supported",
    "target += trigamma(a); z ~ normal(trigamma(s), s);": "trigamma of parameters is not supported",
    "z ~ uniform(a, s);": "^the density uniform of parameters is not supported$",
    "tuple(real, real) t = (a, s); z ~ normal(2 * t.1 + 1, s);": r"^`t\.1` is not supported$",
    "for (n in 1:N) { for (k in 1:3) { if (a > k) break; z[n] ~ normal(k, s); } }": "how often a loop runs",
    "a ~ normal(0, s);": "no statement adds a term for each observation",
    "for (n in 2:N) target += normal_lpdf(z[n] | z[n - 1] * a, s);": "no statement adds a term for each observation",
}


@pytest.mark.parametrize("model", REFUSED)
def test_what_cannot_be_followed_is_refused_in_a_line(model: str) -> None:
    with pytest.raises((NotFollowedError, NoPredictorsError), match=REFUSED[model]):
        made(model)


def test_conditions_on_parameters_are_numbers_as_arguments() -> None:
    found, values = made("int q = a > 0; for (n in 1:N) z[n] ~ normal(q + to_int(5 * z[n]), s);")
    z = values["z"]
    for theta in points():
        at = Point(theta, values)
        expected = stats.norm.logpdf(z, (at.a > 0) + np.trunc(5 * z), at.s)
        np.testing.assert_allclose(found.log_lik(theta), expected, rtol=1e-9)


def test_what_an_observation_takes_from_the_one_before_is_no_number() -> None:
    """So that no proof holds."""
    found, _ = made("real m; for (n in 1:N) { if (y[n] > 0) m = a + xc[n] * b; target += normal_lpdf(z[n] | m, s); }")
    (theta,) = points(1)
    y = made("z ~ normal(a, s);")[1]["y"]
    np.testing.assert_array_equal(np.isnan(found.log_lik(theta)), y == 0)


def test_the_reason_is_that_of_the_likelihood_not_of_what_it_does_not_read() -> None:
    text = """
      data { int N; int unused; vector[N] z; }
      transformed data { int also = unused; }
      parameters { real a; real<lower=0> s; }
      transformed parameters { vector[N] mu = sort_asc(a * z); }
      model { z ~ normal(mu, s); }
    """
    with pytest.raises(NotFollowedError, match="sort_asc is not supported"):
        follow(parse(text), {"N": 5, "z": np.ones(5)}, 5)


def test_the_reason_is_that_of_units_whose_rows_are_read() -> None:
    """Not that transformed data that the likelihood does not read are unknown."""
    text = """
      data { int N; int J; int unused; vector[N] z; array[J] int first; }
      transformed data { int also = unused; }
      parameters { real a; real<lower=0> s; }
      model {
        vector[N] mu = rep_vector(a, N);
        matrix[2, 2] L = s * diag_matrix(rep_vector(1, 2));
        vector[J] lp;
        for (j in 1:J) {
          lp[j] = multi_normal_cholesky_lpdf(z[first[j]:N] | mu[first[j]:N], L);
        }
        target += sum(lp);
      }
    """
    with pytest.raises(NotFollowedError, match=r"`first\[j\]` is not a single known number"):
        follow(parse(text), {"N": 80, "J": 40, "z": np.ones(80), "first": np.arange(1, 80, 2)}, 40)


def test_the_reason_is_that_of_a_term_in_a_loop_over_observations() -> None:
    """Not that its loop cannot run for each observation in turn, nor that a part of the likelihood differs."""
    text = """
      data { int N; vector[N] z; array[N] int late; }
      parameters { real a; real<lower=0> s; }
      model {
        vector[N] mu = a + 0.5 * z;
        for (n in 1 : N) {
          if (late[n] == 0) {
            z[n] ~ normal(mu[n], s);
          } else {
            real survival = beta_lccdf(z[n] | s, exp(mu[n]));
            target += survival;
          }
        }
      }
    """
    values = {"N": 5, "z": np.ones(5), "late": np.arange(5) % 2}
    with pytest.raises(NotFollowedError, match="beta_lccdf is not supported"):
        follow(parse(text), values, 5)


def test_a_loop_that_copies_a_large_table_for_each_element_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it copies, not by its statements."""
    monkeypatch.setattr(observation, "_MOST_STATEMENTS", 100_000)
    text = """
      data { int N; int T; vector[N] z; }
      parameters { real a; }
      transformed parameters {
        array[2, N, T] real of;
        for (n in 1:N) for (t in 1:T) for (k in 1:2) of[k, N - n + 1, t] = a;
      }
      model { for (n in 1:N) z[n] ~ normal(of[1, n, 1], 1); }
    """
    values = {"N": 400, "T": 20, "z": np.ones(400)}
    with pytest.raises(NotFollowedError, match="its loops are too long"):
        follow(parse(text), values, 400)
    monkeypatch.setattr(observation, "_COPIED", 1 << 30)
    assert follow(parse(text), values, 400).density is not None


def test_a_long_loop_over_terms_of_no_observation_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Terms over other data, which may read observations, are not the terms of the observations."""
    monkeypatch.setattr(observation, "_MOST_STATEMENTS", 1000)
    text = """
      data { int N; int M; vector[N] z; vector[M] y; array[M] int g; }
      parameters { real a; real b; }
      model {
        for (n in 1:N) z[n] ~ normal(a, 1);
        for (m in 1:M) {
          real mu = b * z[g[m]];
          y[m] ~ normal(mu, 1);
        }
      }
    """
    m = 2000
    found = follow(parse(text), {"N": 5, "M": m, "z": np.ones(5), "y": np.ones(m), "g": np.ones(m, int)}, 5)
    assert found.density is not None
    assert found.density.name == "normal"


def test_sizes_of_transformed_data_count_the_observations() -> None:
    text = """
      data {{ int N; vector[N] z; }} transformed data {{ int few = N - 2; vector[few] y = z[1 : few]; }}
      parameters {{ real a; real<lower=0> s; }} model {{ y ~ normal(a, s); {more} }}
    """
    counted, looped = (
        in_program(follow(parse(text.format(more=more)), {"N": 7, "few": 5, "y": np.arange(5.0)}, 5).term, 5)
        for more in ("target += -few * log1p(s);", "for (n in 1 : few) target += -log1p(s);")
    )
    assert str(counted) == str(looped)


BETWEEN = "log1m_exp(-s) + log_inv_logit(eta) - log1p_exp(eta - s)"


@pytest.mark.parametrize(
    ("term", "short"),
    [
        ("log1m_exp(log1m_inv_logit(eta))", "log_inv_logit(eta)"),
        ("log1m_exp(log_inv_logit(eta))", "log1m_inv_logit(eta)"),
        ("log(1 - (1 - inv_logit(eta)))", "log_inv_logit(eta)"),
        ("log(inv_logit(eta) - inv_logit(eta - s))", BETWEEN),
        ("log_inv_logit_diff(eta, eta - s)", BETWEEN),
        ("log_diff_exp(log_inv_logit(eta), log1m_inv_logit(s - eta))", BETWEEN),
        ("log1m(p + (1 - p) * inv_logit(eta))", "log1m(p) + log1m_inv_logit(eta)"),
        ("log(1 - (inv_logit(eta) * (1 - p) + p))", "log1m(p) + log1m_inv_logit(eta)"),
        ("log1m(0.25 + 0.75 * inv_logit(eta))", "log(0.75 * inv_logit(-eta))"),
        ("log1m(p + (0.99 - p) * inv_logit(eta))", "log(0.01 + (0.99 - p) * inv_logit(-eta))"),
    ],
)
def test_logs_of_probabilities_are_functions_of_their_logits(term: str, short: str) -> None:
    """Bounds on nested functions would be too wide on wide boxes."""
    text = "for (n in 1 : N) {{ real eta = a + xc[n] * b; target += {}; }}"
    found, plain = (made(text.format(one))[0] for one in (term, short))
    families = [one.family for one in (found, plain)]
    far = np.append(50.0, points(1)[0][1:])
    assert np.isfinite(found.log_lik(far)).all()
    for theta in [*points(), far]:
        np.testing.assert_allclose(found.log_lik(theta), plain.log_lik(theta), rtol=1e-12)
        widest, own = (
            one.largest(3, at.at(theta), np.ones((1, N)), 2.0) for one, at in zip(families, (found, plain), strict=True)
        )
        np.testing.assert_allclose(widest, own, rtol=1e-9)


def test_offsets_and_multipliers_may_be_parameters() -> None:
    text = """
      data {{ int N; int J; vector[N] y; array[N] int g; }}
      parameters {{ real m; real<lower=0> s; {declared} }}
      model {{ y ~ student_t(4, {read}, 1); }}
    """
    values = {"N": 5, "J": 2, "y": np.arange(5.0), "g": np.array([1, 2, 2, 1, 2])}
    declared, written = (
        in_program(follow(parse(text.format(declared=one, read=read)), values, 5).term, 5)
        for one, read in (("vector<offset=m, multiplier=s>[J] u;", "u[g]"), ("vector[J] z;", "m + s * z[g]"))
    )
    assert str(declared) == str(written)


def test_a_function_that_returns_early_is_followed_for_each_value_of_an_integer() -> None:
    text = """
      functions {
        real side(real u, real a, int k) {
          if (k == 1) { if (u < 0) { return a; } }
          return a * u;
        }
      }
      data { int N; array[N] int k; vector[N] x; }
      parameters { real a; real b; }
      model { for (n in 1:N) target += -square(side(x[n] - b, a, k[n])); }
    """
    n, rng = 200, np.random.default_rng(1)
    k, x = rng.integers(0, 3, n), rng.standard_normal(n)
    found = _dense(*in_program(follow(parse(text), {"N": n, "k": k, "x": x}, n).term, n))
    a, b = theta = np.array([0.7, 0.2])
    truth = -np.square(np.where((k == 1) & (x < b), a, a * (x - b)))
    np.testing.assert_allclose(found.log_lik(theta), truth, rtol=1e-12)


def test_functions_that_call_themselves_are_followed_for_each_value_of_an_integer() -> None:
    text = """
      functions { real f(int k, real a) { return k == 0 ? 0 : a + f(k - 1, 2 * a); } }
      data { int N; array[N] int k; }
      parameters { real a; }
      model { for (n in 1:N) target += -square(1 + f(k[n], a)); }
    """
    n = 60
    k = np.random.default_rng(1).integers(0, 5, n)
    found = _dense(*in_program(follow(parse(text), {"N": n, "k": k}, n).term, n))
    np.testing.assert_allclose(found.log_lik(np.array([0.3])), -np.square(1 + 0.3 * (2.0**k - 1)), rtol=1e-12)
    own = LikelihoodSplit((), parse(text), "", ())
    with pytest.raises(NoPredictorsError, match="cannot read its text"):
        sparse_predictors(own, {"N": n, "k": np.arange(n)}, n)


def test_the_number_of_elements_of_a_matrix_is_that_of_all_of_them() -> None:
    text = """
      data { int N; vector[N] y; matrix[N, 2] x; }
      parameters { real a; matrix[2, 3] m; }
      model { matrix[N, 2] z = a * x; for (n in 1:N) target += -square(y[n] - a * num_elements(m) * cols(z)); }
    """
    y = np.array([0.5, -1.0, 2.0])
    found = _dense(*in_program(follow(parse(text), {"N": 3, "y": y, "x": np.ones((3, 2))}, 3).term, 3))
    np.testing.assert_allclose(found.log_lik(np.full(7, 0.1)), -((y - 1.2) ** 2))


@pytest.mark.parametrize("adding", ["s += -e;", "s = s - e;", "s -= e;"])
def test_sums_over_observations_may_be_of_differences(adding: str) -> None:
    text = f"""
      data {{ int N; vector[N] y; }}
      parameters {{ real a; }}
      model {{ real s = 0; for (n in 1:N) {{ real e = square(y[n] - a); {adding} }} target += 2 * s; }}
    """
    y = np.array([0.5, -1.0, 2.0])
    found = _dense(*in_program(follow(parse(text), {"N": 3, "y": y}, 3).term, 3))
    np.testing.assert_allclose(found.log_lik(np.array([0.3])), -2 * (y - 0.3) ** 2)


def test_a_loop_that_ends_early_does_not_matter_if_the_likelihood_does_not_read_it() -> None:
    text = """
      data { int N; array[N] int y; }
      parameters { real a; }
      model { for (n in 1:N) { real s = 0; for (k in 1:3) { if (y[n] > k) break; s += a; } target += y[n] * a; } }
    """
    y = np.array([1, 2, 3, 1])
    found = _dense(*in_program(follow(parse(text), {"N": 4, "y": y}, 4).term, 4))
    np.testing.assert_allclose(found.log_lik(np.array([0.3])), 0.3 * y)


def test_a_loop_that_ends_early_is_given_up() -> None:
    text = """
      data { int N; array[N] int y; }
      transformed data { int most = 0; for (n in 1:N) { if (y[n] > 2) { break; } most += 1; } }
      parameters { real a; }
      model { for (n in 1:N) target += y[n] * a - most * exp(a); }
    """
    with pytest.raises(NotFollowedError, match="`break;` leaves the loop over the observations"):
        follow(parse(text), {"N": 4, "y": np.array([1, 2, 3, 1])}, 4)


def test_many_forms_are_one() -> None:
    """With data of 0 and 1; terms that are undefined where they are not selected have no say."""
    text = """
      data { int N; int T; array[N, T] int y; array[N] int late; }
      parameters { array[2] real<lower=0, upper=1> p; real<lower=0, upper=1> psi; }
      model {
        for (n in 1 : N) {
          real seen = log(psi);
          vector[2] lp;
          for (t in 1 : T) seen += log(y[n, t] == 1 ? p[1] * p[2] : y[n, t] == 2 ? (1 - p[1]) * p[2] : 1 - p[2]);
          lp[1] = seen;
          if (late[n]) lp[2] = log1m(psi);
          target += late[n] ? log_sum_exp(lp) : lp[1];
        }
      }
    """
    rng = np.random.default_rng(1)
    n, steps = 500, 5
    y, late = rng.integers(1, 4, (n, steps)), rng.integers(0, 2, n)
    found = _dense(*in_program(follow(parse(text), {"N": n, "T": steps, "y": y, "late": late}, n).term, n))
    assert isinstance(found.family, ProgramFamily)
    assert len(found.family.code.starts) == 2
    theta = np.array([0.3, -0.4, 0.8])
    first, second, psi = special.expit(theta)
    each = np.array([first * second, (1 - first) * second, 1 - second])[y - 1].prod(axis=1)
    np.testing.assert_allclose(found.log_lik(theta), np.log(psi * each + late * (1 - psi)), rtol=1e-12)


def test_histories_with_different_starts_are_one_form() -> None:
    """What is not set before the first capture is not a number, which no factor of 0 makes one."""
    text = """
      data { int N; int T; array[N, T] int y; array[N] int first; }
      parameters { array[2] real<lower=0, upper=1> stay; array[2] real<lower=0, upper=1> p; }
      model {
        array[T, 2] real gamma;
        for (n in 1 : N) {
          for (k in 1 : 2) gamma[first[n], k] = k == y[n, first[n]];
          for (t in first[n] + 1 : T) {
            gamma[t, 1] = (gamma[t - 1, 1] * stay[1] + gamma[t - 1, 2] * (1 - stay[2]))
                          * (y[n, t] == 1 ? p[1] : y[n, t] == 2 ? 0.0 : 1 - p[1]);
            gamma[t, 2] = (gamma[t - 1, 1] * (1 - stay[1]) + gamma[t - 1, 2] * stay[2])
                          * (y[n, t] == 2 ? p[2] : y[n, t] == 1 ? 0.0 : 1 - p[2]);
          }
          target += log(gamma[T, 1] + gamma[T, 2]);
        }
      }
    """
    rng = np.random.default_rng(1)
    n, steps = 400, 6
    y, first = rng.integers(1, 4, (n, steps)), rng.integers(1, steps + 1, n)
    y[np.arange(n), first - 1] = rng.integers(1, 3, n)
    data = {"N": n, "T": steps, "y": y, "first": first}
    found = _dense(*in_program(follow(parse(text), data, n).term, n))
    assert isinstance(found.family, ProgramFamily)
    assert len(found.family.code.starts) == 2
    theta = np.array([0.3, -0.4, 0.8, 0.1])
    stay, p = special.expit(theta).reshape(2, 2)
    move = np.array([[stay[0], 1 - stay[0]], [1 - stay[1], stay[1]]])
    seen = np.array([[p[0], 0.0, 1 - p[0]], [0.0, p[1], 1 - p[1]]])
    truth = []
    for history, start in zip(y, first, strict=True):
        gamma = np.eye(2)[history[start - 1] - 1]
        for one in history[start:]:
            gamma = (gamma @ move) * seen[:, one - 1]
        truth.append(np.log(gamma.sum()))
    np.testing.assert_allclose(found.log_lik(theta), truth, rtol=1e-12, atol=1e-12)


def test_many_columns_with_infinite_values_are_no_variants() -> None:
    """Each of nine has values of 0, whose logarithms are infinite: observations do not differ in kind by all."""
    text = """
      data { int N; int T; matrix[N, T] y; }
      parameters { real a; real<lower=0> s; }
      model { for (n in 1:N) for (t in 1:T) target += -square(a - exp(s * log(y[n, t]))); }
    """
    n, columns, theta = 2000, 9, np.array([0.3, 0.1])
    y = np.random.default_rng(1).integers(0, 2, (n, columns)) * 1.5
    found = _dense(*in_program(follow(parse(text), {"N": n, "T": columns, "y": y}, n).term, n))
    assert isinstance(found.family, ProgramFamily)
    assert len(found.family.code.starts) == 2
    truth = -((theta[0] - np.where(y > 0, np.maximum(y, 1) ** np.exp(theta[1]), 0)) ** 2).sum(axis=1)
    np.testing.assert_allclose(found.log_lik(theta), truth, rtol=1e-12)


def test_a_prior_of_many_parameters_is_no_obstacle() -> None:
    text = """
      data { int N; int J; array[N] int g; vector[N] y; }
      parameters { vector[J] u; real<lower=0> tau; }
      model { u ~ normal(0, tau); target += dot_self(u); y ~ normal(u[g], 1); }
    """
    n, groups = 10, 1200
    values = {"N": n, "J": groups, "g": np.arange(n) + 1, "y": np.zeros(n)}
    found = _dense(*in_program(follow(parse(text), values, n).term, n))
    theta = np.random.default_rng(1).standard_normal(groups + 1)
    np.testing.assert_allclose(found.log_lik(theta), -0.5 * theta[:n] ** 2 - 0.5 * np.log(2 * np.pi))


def test_an_observation_may_be_a_person_with_hundreds_of_trials() -> None:
    text = """
      data { int N; int T; array[N, T] int c; matrix[N, T] r; }
      parameters { vector[N] a; real b; }
      model {
        for (n in 1:N) {
          real q = 0;
          for (t in 1:T) { c[n, t] ~ bernoulli_logit(b * q); q += inv_logit(a[n]) * (r[n, t] - q); }
        }
      }
    """
    n, trials, rng = 3, 500, np.random.default_rng(1)
    values = {"N": n, "T": trials, "c": rng.integers(2, size=(n, trials)), "r": rng.standard_normal((n, trials))}
    found = _dense(*in_program(follow(parse(text), values, n).term, n))
    theta, q, expected = np.append(rng.standard_normal(n), 1.5), np.zeros(n), np.zeros(n)
    for c, r in zip(values["c"].T, values["r"].T, strict=True):
        expected += stats.bernoulli.logpmf(c, special.expit(theta[-1] * q))
        q += special.expit(theta[:n]) * (r - q)
    np.testing.assert_allclose(found.log_lik(theta), expected)
    eta, step = found.at(theta), 1e-6
    (slopes,) = found.family.derivatives((1,), eta)
    for k, unit in enumerate(np.eye(len(eta))):
        below, above = (found.family.log_lik(eta + sign * step * unit[:, np.newaxis]) for sign in (-1, 1))
        np.testing.assert_allclose(slopes[k], (above - below) / (2 * step), rtol=1e-5)


def test_a_recursion_over_many_rows_is_given_up_early(monkeypatch: pytest.MonkeyPatch) -> None:
    n, most = 20_000, 3_000
    monkeypatch.setattr(observation, "_MOST_STATEMENTS", most)  # all iterations would take 40,000
    program = parse(PROGRAM.format(model="target += own_lpdf(z | a, s);", functions=RECURSION))
    with pytest.raises(NotFollowedError, match="more than 2000 operations in a row"):
        follow(program, {"N": n, "x": np.ones((n, 2)), "z": np.ones(n)}, n)


# --- operations, one by one ----------------------------------------------------------------------------------------


def _normal_quantile(x: Any) -> Any:
    """The quantile at probability e^x, computed from the smaller tail."""
    p = mpmath.exp(x)
    tail = p if p < 0.5 else -mpmath.expm1(x)
    z = mpmath.findroot(
        lambda z: mpmath.log(mpmath.erfc(z / mpmath.sqrt(2)) / 2 / tail), mpmath.sqrt(-2 * mpmath.log(tail))
    )
    return -z if p < 0.5 else z


OF_MPMATH: dict[str, Callable[[Any], Any]] = {
    "exp": mpmath.exp,
    "log": mpmath.log,
    "log1p": lambda x: mpmath.log(1 + x),
    "log1p_exp": lambda x: mpmath.log(1 + mpmath.exp(x)),
    "inv_logit": lambda x: 1 / (1 + mpmath.exp(-x)),
    "log1m_exp": lambda x: mpmath.log(1 - mpmath.exp(x)),
    "square": lambda x: x * x,
    "inv": lambda x: 1 / x,
    "sqrt": mpmath.sqrt,
    "lgamma": mpmath.loggamma,
    "digamma": mpmath.digamma,
    "std_normal_lcdf": lambda x: mpmath.log(mpmath.ncdf(x)),
    "cos": mpmath.cos,
    "atan": mpmath.atan,
    "std_normal_log_qf": lambda x: _normal_quantile(x),
    "log_bessel_i0_root": lambda x: mpmath.log(mpmath.hyp0f1(1, x / 4)),
    "log_mills": lambda x: mpmath.log(mpmath.ncdf(x) / mpmath.npdf(x)),
}
# Centres and radii of intervals.
INTERVALS = {
    name: [(0.7, 0.3), (2.5, 1.0), (9.0, 2.0), (30.0, 4.0)] for name in ("log", "inv", "sqrt", "lgamma", "digamma")
} | {
    **{name: [(-0.5, 0.2), (-3.0, 1.0), (-9.0, 2.0)] for name in ("log1m_exp", "std_normal_log_qf")},
    "log1p": [(-0.5, 0.2), (2.0, 1.5)],
    "log_bessel_i0_root": [(0.1, 0.3), (4.0, 3.0), (60.0, 30.0), (400.0, 20.0), (5000.0, 100.0)],
}
EVERYWHERE = [(0.3, 0.4), (1.3, 1.0), (-1.9, 1.3), (-7.0, 1.5), (2.3, 2.5), (4.0, 0.5)]
INTERVALS["log_mills"] = [*EVERYWHERE, (-30.0, 8.0), (-101.0, 5.0), (-4000.0, 300.0)]
SEVENTH = _loop.OPERATIONS.index("exp")


def program(*codes: tuple[str, int, int], n_arguments: int = 1) -> _loop.Program:
    """A program of such instructions."""
    numbers = np.array([(_loop.OPERATIONS.index(kind), a, b) for kind, a, b in codes], np.int32)
    return _loop.Program(np.array([0, len(codes)], np.int32), numbers, np.zeros(len(codes)), n_arguments, 1)


def suprema(of: _loop.Program, order: int, own: Array, centre: Array, lengths: Array, radius: float) -> Array:
    """Bounds on the sums of absolute derivatives of an order, times lengths, on boxes: from enclosures of each."""
    out = np.empty((comb(len(centre) + order - 1, order), centre.shape[1]))
    of.enclose(order, *(np.ascontiguousarray(each) for each in (own, centre, lengths)), radius, out)
    return np.asarray(factorial(order) * out.sum(0))


def largest(of: _loop.Program, order: int, centre: list[float], lengths: list[float], radius: float) -> float:
    at, moves = (np.array(each, float)[:, np.newaxis] for each in (centre, lengths))
    return float(suprema(of, order, np.zeros((1, 1)), at, moves, radius)[0])


def test_every_operation_is_held_against_mpmath() -> None:
    assert set(_loop.OPERATIONS[SEVENTH:]) == set(OF_MPMATH)


@pytest.mark.parametrize("name", OF_MPMATH)
def test_values_are_those_of_mpmath(name: str) -> None:
    of = program(("argument", 0, 0), (name, 0, 0))
    for centre, radius in INTERVALS.get(name, EVERYWHERE):
        at = np.linspace(centre - radius, centre + radius, 9)[np.newaxis]
        out = np.empty((4, 9))
        of.expand(3, np.zeros((1, 9)), at, out)
        for k in range(4):
            truth = [float(mpmath.diff(OF_MPMATH[name], x, k)) / float(mpmath.factorial(k)) for x in at[0]]
            assert np.allclose(out[k], truth, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("name", OF_MPMATH)
def test_bounds_are_the_suprema_of_derivatives(name: str, order: int) -> None:
    """Never below, and so near that a bound 1 % smaller fails."""
    of = program(("argument", 0, 0), (name, 0, 0))
    ratios = []
    for centre, radius in INTERVALS.get(name, EVERYWHERE):
        grid = np.linspace(centre - radius, centre + radius, 41)
        with mpmath.workdps(30):
            truth = max(abs(float(mpmath.diff(OF_MPMATH[name], mpmath.mpf(x), order))) for x in grid)
        bound = largest(of, order, [centre], [1.0], radius)
        assert bound >= truth * (1 - 1e-12)
        ratios.append(bound / truth if truth > 1e-12 else 1.0)
    assert min(ratios) < 1.01


BINARY: dict[str, tuple[tuple[tuple[str, int, int], ...], float]] = {
    # third derivatives of e^a e^b at 0, of which there are eight, all 1; of e^(a + b) and e^(a - b) as well
    "product": ((("argument", 0, 0), ("argument", 1, 0), ("exp", 0, 0), ("exp", 1, 0), ("product", 2, 3)), 8.0),
    "sum": ((("argument", 0, 0), ("argument", 1, 0), ("sum", 0, 1), ("exp", 2, 0)), 8.0),
    "difference": ((("argument", 0, 0), ("argument", 1, 0), ("difference", 0, 1), ("exp", 2, 0)), 8.0),
}


@pytest.mark.parametrize("name", BINARY)
def test_bounds_of_two_arguments(name: str) -> None:
    """The supremum on the box is that at its corner, e^(a + b)."""
    codes, at_centre = BINARY[name]
    of = program(*codes, n_arguments=2)
    for radius in (1e-6, 0.01, 0.05):
        truth = at_centre * np.exp(2 * radius)
        bound = largest(of, 3, [0.0, 0.0], [1.0, 1.0], radius)
        assert truth * (1 - 1e-12) <= bound
        assert bound < 1.01 * truth


LOG_SUM_EXP = (("argument", 0, 0), ("argument", 1, 0), ("log_sum_exp", 0, 1))
PLACES = np.array([[0.3, -1.2, 9.0, -30.0, -5e17, -1.3, 800.0], [0.4, 2.0, -3.0, -31.0, -1.3, -5e17, 801.0]])


def test_a_log_of_a_sum_is_that_of_numpy_also_if_one_term_is_nearly_0() -> None:
    """From the smaller term, rounding would lose the larger one."""
    codes = np.array([(_loop.OPERATIONS.index(name), a, b) for name, a, b in LOG_SUM_EXP], np.int32)
    family = ProgramFamily(Code(np.array([0, 3], np.int32), codes, np.zeros(3)), 2, np.zeros((1, PLACES.shape[1])))
    truth, shares = np.logaddexp(*PLACES), special.softmax(PLACES, axis=0)
    values, slopes = family.gradients(PLACES)
    expanded, gradients, hessians = family.derivatives((0, 1, 2), PLACES)
    for one in (values, expanded):
        np.testing.assert_allclose(one, truth, rtol=1e-14)
    for one in (slopes, gradients):
        np.testing.assert_allclose(one, shares, rtol=1e-12, atol=1e-15)
    product = shares[0] * shares[1]
    np.testing.assert_allclose(hessians, np.array([[product, -product], [-product, product]]), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("centre", [(0.0, 0.0), (1.5, 0.2), (-0.4, 2.0)])
def test_bounds_of_a_log_of_a_sum(centre: tuple[float, float]) -> None:
    """Never below the supremum of the sum of absolute derivatives: eight times that of one logistic function."""
    of = program(*LOG_SUM_EXP, n_arguments=2)
    for radius in (1e-6, 0.01, 0.1):
        change = centre[1] - centre[0] + np.linspace(-2 * radius, 2 * radius, 401)
        share = special.expit(change)
        truth = 8 * np.abs(share * (1 - share) * (1 - 2 * share)).max()
        bound = largest(of, 3, list(centre), [1.0, 1.0], radius)
        assert truth * (1 - 1e-9) <= bound
        assert bound < 1.01 * truth + 8 * radius


def split(of: _loop.Program, centre: list[float], radius: float, order: int = 3) -> Array:
    """Bounds on errors by argument, with lengths of 1."""
    at = np.array(centre)[:, np.newaxis]
    out = np.empty(at.shape)
    of.largest(order, np.zeros((1, 1)), at, np.ones(at.shape), [radius], out)
    return np.asarray(out[:, 0] / factorial(order))


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("name", OF_MPMATH)
def test_bounds_on_errors_of_operations_hold(name: str, order: int) -> None:
    """Never below the largest error over the power of the change, and so near that a bound 2 % smaller fails."""
    of = program(("argument", 0, 0), (name, 0, 0))
    tightest = 0.0
    for centre, radius in [*INTERVALS.get(name, EVERYWHERE), (INTERVALS.get(name, EVERYWHERE)[0][0], 0.01)]:
        bound = float(split(of, [centre], radius, order)[0])
        with mpmath.workdps(40):
            terms = mpmath.taylor(OF_MPMATH[name], mpmath.mpf(centre), order - 1)
            for s in np.linspace(-radius, radius, 12):
                error = OF_MPMATH[name](mpmath.mpf(centre) + s) - sum(
                    c * mpmath.mpf(s) ** k for k, c in enumerate(terms)
                )
                most = float(abs(error) / abs(mpmath.mpf(s)) ** order)
                assert most <= bound * (1 + 1e-9) + 1e-12
                tightest = max(tightest, most / bound if bound > 1e-12 else 1.0)
    assert tightest > 0.98


THREE = (*(("argument", k, 0) for k in range(3)), ("sum", 0, 1), ("sum", 3, 2), ("exp", 4, 0))


@pytest.mark.parametrize("radius", [0.01, 0.3, 1.0])
def test_bounds_on_errors_are_those_at_the_worst_corner(radius: float) -> None:
    """Of e^(a + b + c), of which each argument has a third. A bound 1 % smaller, or of a smaller box, is exceeded."""
    bound = split(program(*THREE, n_arguments=3), [0.0, 0.0, 0.0], radius)
    np.testing.assert_allclose(bound, bound[0])
    change = 3 * radius
    error = (np.expm1(change) - change - change**2 / 2) / radius**3
    assert error <= bound.sum() * (1 + 1e-6)
    assert bound.sum() < (1.01 if radius < 0.1 else 1.5) * error
    assert split(program(*THREE, n_arguments=3), [0.0, 0.0, 0.0], radius / 4).sum() < error


def test_an_argument_that_is_no_part_of_third_derivatives_has_no_share() -> None:
    """The error of e^a + b^2 is that of e^a, and a b c is shared by all."""
    alone = (("argument", 0, 0), ("argument", 1, 0), ("exp", 0, 0), ("square", 1, 0), ("sum", 2, 3))
    bound = split(program(*alone, n_arguments=2), [0.0, 0.0], 0.1)
    assert bound[1] == 0
    assert bound[0] == pytest.approx((np.expm1(0.1) - 0.1 - 0.005) / 0.001, rel=0.01)
    product = (*(("argument", k, 0) for k in range(3)), ("product", 0, 1), ("product", 3, 2))
    np.testing.assert_allclose(split(program(*product, n_arguments=3), [1.0, 2.0, 3.0], 5.0), 1 / 3)


def test_beyond_where_a_function_is_defined_there_is_no_bound() -> None:
    of = program(("argument", 0, 0), ("log", 0, 0))
    assert largest(of, 3, [1.0], [1.0], 1.5) == np.inf
    assert np.isfinite(largest(of, 3, [1.0], [1.0], 0.5))


def test_programs_that_read_what_is_not_there_are_refused() -> None:
    with pytest.raises(ValueError, match="reads what is not there"):
        program(("argument", 1, 0))
    with pytest.raises(ValueError, match="reads what is not there"):
        program(("exp", 0, 0))


def test_what_data_make_of_a_branch_that_is_not_taken_does_not_matter() -> None:
    """The logarithm of an observation that is 0 stands in the branch of the others."""
    y, theta = np.array([0.0, 2.0, 3.0]), 0.3
    with np.errstate(divide="ignore"):
        log_y = np.log(y)
    a = affine(np.ones((1, 1)), np.zeros(1))
    with np.errstate(all="raise"):
        family, (row,) = in_program(select(y == 0, apply("inv_logit", a), apply("exp", a - data(log_y))), len(y))
    eta = theta * row.slopes[:, 0] + row.offset
    truth = [special.expit(theta), *np.exp(theta - log_y[1:])]
    assert family.log_lik(np.broadcast_to(eta, (1, len(y)))) == pytest.approx(truth, rel=1e-14)


def of_one_function(name: str, x: Array) -> tuple[Array, Array]:
    """Values and slopes of a function of one variable, by the program of many observations."""
    codes = np.array([(_loop.OPERATIONS.index(one), 0, 0) for one in ("argument", name)], np.int32)
    family = ProgramFamily(Code(np.array([0, 2], np.int32), codes, np.zeros(2)), 1, np.zeros((1, len(x))))
    values, slopes = family.gradients(x[np.newaxis])
    return values, slopes[0]


@pytest.mark.parametrize("scale", [1.0, 30.0, 700.0])
def test_functions_of_many_numbers(scale: float) -> None:
    """To four units in the last place."""
    x = scale * np.random.default_rng(1).uniform(-1, 1, 2000)
    values, slopes = of_one_function("exp", x)
    np.testing.assert_allclose(values, np.exp(x), rtol=9e-16)
    np.testing.assert_array_equal(slopes, values)
    values, slopes = of_one_function("log1p_exp", x)
    np.testing.assert_allclose(values, np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0), rtol=9e-16)
    np.testing.assert_allclose(slopes, special.expit(x), rtol=9e-16)


def test_functions_of_extreme_numbers() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 710.0, 709.5, -745.0, -740.0, -746.0, 0.0])
    with np.errstate(over="ignore", under="ignore"):
        np.testing.assert_allclose(of_one_function("exp", x)[0], np.exp(x), rtol=1e-15)
    values, slopes = of_one_function("log1p_exp", x)
    expected = np.where(x > 700, x, np.log1p(np.exp(np.minimum(x, 700))))
    np.testing.assert_allclose(values, expected, rtol=1e-15, atol=1e-300)
    np.testing.assert_allclose(slopes, special.expit(x), rtol=1e-15, atol=1e-300)
