"""A program for the made-up CmdStan, and data."""

from typing import Any

from stansub.nuts.base import Program

CODE = """data {
  int<lower=0> N;
  vector[N] y;
}
parameters {
  real mu;
  matrix[2, 3] omega;
}
model {
  y ~ normal(mu, 1);
  to_vector(omega) ~ normal(0, 1);
}
"""
TOY = Program("toy", CODE)


def data(n: int = 4) -> dict[str, Any]:
    return {"N": n, "y": [0.5] * n}
