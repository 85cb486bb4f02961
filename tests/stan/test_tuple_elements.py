"""Elements of tuples of data: which become variables, and that the likelihood is then a sum."""

from pathlib import Path

import numpy as np
import pytest
from simulated import Data
from test_identity import check_identity
from texts import canonical, words

import stansub
from stansub.stan.analysis import Analysis
from stansub.stan.passes.tuple_elements import with_tuple_elements
from stansub.stan.syntax import Program

CODE = """
functions {{ tuple(vector, real) scaled(vector v) {{ return (v / sd(v), sd(v)); }} }}
data {{ int N; vector[N] x; vector[N] y; {declared} }}
transformed data {{ tuple(vector[N], real) z = scaled(x); }}
parameters {{ real a; real b; }}
model {{ a ~ normal(0, 1); b ~ normal(0, 1); {model} }}
"""
MODEL = "y ~ normal(a + b * z.1, 1);"


def read(*, declared: str = "", model: str = MODEL) -> Program:
    return canonical(CODE.format(declared=declared, model=model))


def test_elements_of_observations_are_variables() -> None:
    model = "y ~ normal(a + b * z.1 + pair.1.2, z.2);"
    found = with_tuple_elements(read(declared="tuple(tuple(real, vector[N]), real) pair;", model=model))
    assert isinstance(found, Program)
    declared = "vector[N] stansub_element_1 = z.1; vector[N] stansub_element_2 = pair.1.2;"
    assert words(declared) in words(found.code)
    assert words("y ~ normal(a + b * stansub_element_1 + stansub_element_2, z.2);") in words(found.code)


@pytest.mark.parametrize(
    "program",
    [
        read(model="y ~ normal(a + b * x, z.2);"),
        read(declared="array[N] tuple(real, real) pairs;", model="y ~ normal(pairs[1].1, pairs[2].2);"),
    ],
)
def test_other_tuples_stay(program: Program) -> None:
    assert with_tuple_elements(program) is None


def test_the_likelihood_reads_the_elements() -> None:
    split = Analysis.of(read()).likelihood_split()
    assert "stansub_element_1" in split.likelihood.code


@pytest.mark.slow
def test_the_sum_is_proved(tmp_path: Path) -> None:
    path, rng = tmp_path / "tuples.stan", np.random.default_rng(1)
    path.write_text(read().code)
    data: Data = {"N": 60, "x": rng.normal(size=60), "y": rng.normal(size=60)}
    model = stansub.compile_model(path)
    posterior = model.with_data(data, block_size=7, seed=3)
    assert posterior.blocks.n_observations == 60
    check_identity(posterior, model, data)
