"""Sizes of transformed data that functions of data return: which become integers, and that these can be cut along."""

import pytest
from texts import canonical, words

from stansub.stan.parts import divide
from stansub.stan.passes.computed_sizes import size_expressions, with_size_variables
from stansub.stan.passes.rewriting import RefusedError
from stansub.stan.reading.sizes import observations_in
from stansub.stan.syntax import Program

CODE = """
functions {{ int n_zero(array[] int y) {{ return sum(y) > 3; }} }}
data {{ int N; int J; array[N] int y; array[J] int n; }}
transformed data {{ int positive = N - n_zero(y); {declared} }}
parameters {{ real<lower=0> lambda; }}
model {{ {model} }}
"""


def read(declared: str, model: str = "lambda ~ gamma(2, 1); y ~ poisson(lambda);") -> Program:
    return canonical(CODE.format(declared=declared, model=model))


def test_sizes_that_data_decide_are_integers() -> None:
    found = with_size_variables(
        read("array[N - n_zero(y)] int a; matrix[n[1], N - n_zero(y)] b = rep_matrix(0, n[1], N - n_zero(y));")
    )
    assert found is not None
    assert not isinstance(found, RefusedError)
    written = """int stansub_size_1 = N - n_zero(y); array[stansub_size_1] int a; int stansub_size_2 = n[1];
    matrix[stansub_size_2, stansub_size_1] b = rep_matrix(0, n[1], N - n_zero(y));"""
    assert words(written) in words(found.code)
    assert size_expressions(found) == {"stansub_size_1": "N - n_zero(y)", "stansub_size_2": "n[1]"}


@pytest.mark.parametrize("size", ["N", "positive", "N + 1", "N - J", "size(y)", "2 * num_elements(n)", "N > 3 ? J : 0"])
def test_sizes_that_integers_decide_stay(size: str) -> None:
    assert with_size_variables(read(f"vector[{size}] a;")) is None


def test_such_rows_can_be_cut() -> None:
    model = "vector[N - n_zero(y)] mu = rep_vector(lambda, N - n_zero(y)); lambda ~ gamma(2, 1); a ~ poisson(mu);"
    written = read("array[N - n_zero(y)] int<lower=1> a;", model)
    assert [str(one) for one in observations_in(written, "N - n_zero(y)")] == ["a ~ poisson(mu);"]
    program = with_size_variables(written)
    assert isinstance(program, Program)
    assert "vector[stansub_size_1] mu = rep_vector(lambda, stansub_size_1);" in program.code
    parts = divide(program)
    assert parts is not None
    assert parts.sizes == ("stansub_size_1",)
