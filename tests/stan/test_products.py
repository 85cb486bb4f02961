"""Products of parameters in the text of a likelihood."""

import pytest

from stansub.stan.analysis import Analysis
from stansub.stan.syntax import parse

PROGRAM = """
data {{ int N; int I; int P; array[N] int y; vector[N] x; array[N] int g; array[N] int h; matrix[N, I] z; }}
parameters {{ real s; vector[I] a; vector[P] b; matrix[P, 2] c; matrix[I, 2] d; vector<lower=0>[I] v;
  vector<lower=0>[P] w; }}
transformed parameters {{ vector[I] e = exp(a); }}
model {{ a ~ normal(0, 1); b ~ normal(0, 1); {model} }}
"""


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("y ~ bernoulli_logit(e[g] .* (b[h] - a[g]));", True),
        ("for (n in 1:N) y[n] ~ bernoulli_logit(e[g[n]] * b[h[n]]);", True),
        ("for (n in 1:N) y[n] ~ bernoulli_logit(dot_product(c[h[n]], d[g[n]]));", True),
        ("y ~ bernoulli_logit(b[h] ./ e[g]);", True),
        ("y ~ bernoulli_logit(v[g] .* b[h]);", True),
        ("y ~ poisson(v[g] .* w[h]);", False),
        ("y ~ bernoulli_logit(a[g] + b[h]);", False),
        ("y ~ bernoulli_logit(x .* b[h] + z * a);", False),
        ("y ~ bernoulli_logit(s * b[h]);", False),
        ("b ~ normal(0, 1); target += sum(c[, 1] .* b); y ~ bernoulli_logit(a[g]);", False),
    ],
)
def test_products_of_parameters(model: str, expected: bool) -> None:
    assert Analysis.of(parse(PROGRAM.format(model=model))).hints("N").multiplies is expected
