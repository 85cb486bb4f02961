"""Functions that assign at listed places: which calls are written in place, and which are left alone."""

import pytest
from texts import canonical, words

from stansub.stan.filling_functions import filled_in_place
from stansub.stan.passes import rewriting
from stansub.stan.syntax import Program

MERGE = """
  vector merge_missing(array[] int gone, vector x_obs, vector x_miss) {
    int N = dims(x_obs)[1];
    int M = num_elements(x_miss);
    vector[N] merged;
    merged = x_obs;
    for (i in 1:M) merged[gone[i]] = x_miss[i];
    return merged;
  }"""
SHORT = """
  vector merge_missing(array[] int gone, vector x_obs, vector x_miss) {
    vector[rows(x_obs)] merged = x_obs;
    merged[gone] = x_miss;
    for (i in 1:size(gone)) merged[gone[i]] = x_miss[i];
    return merged;
  }"""
CODE = """
functions {{ {function} }}
data {{ int N; int M; vector[N] x; vector[N] y; array[M] int gone; }}
parameters {{ real a; real b; vector[M] guess; real<lower=0> s; }}
model {{ {model} v ~ normal(a, 1); y ~ normal(b * v, s); }}
"""
CALL = "merge_missing(gone, to_vector(x), guess)"


def read(function: str, model: str) -> Program:
    return canonical(CODE.format(function=function, model=model))


def model_of(program: Program) -> str:
    return words(program.text(program.model.inside)).removesuffix(words("v ~ normal(a, 1); y ~ normal(b * v, s);"))


@pytest.mark.parametrize("model", [f"vector[N] v; v = {CALL};", f"vector[N] v = {CALL};"])
def test_values_are_assigned_to_the_variable_of_the_call(model: str) -> None:
    found = filled_in_place(read(MERGE, model))
    assert isinstance(found, Program)
    loop = "for (stansub_i_1 in 1 : M) { v[gone[stansub_i_1]] = guess[stansub_i_1]; }"
    assert model_of(found).strip() == words(f"vector[N] v; v = to_vector(x); {loop}")


@pytest.mark.parametrize("function", [MERGE, SHORT])
def test_observations_then_find_their_values(function: str) -> None:
    found = rewriting(read(function, f"vector[N] v = {CALL};"))
    assert filled_in_place.name in found.passes
    assert "v[stansub_row_0] = guess[stansub_place_1[stansub_row_0]]" in found.program.code
    assert "gone" not in model_of(found.program)


@pytest.mark.parametrize(
    ("function", "model"),
    [
        (MERGE, f"vector[N] v = 2 * {CALL};"),
        (MERGE, "vector[N] v = x; v = merge_missing(gone, v, guess);"),
        (MERGE.replace("merged[gone[i]]", "merged[i]"), f"vector[N] v = {CALL};"),
        (MERGE.replace("int M =", "real k = 2; int M ="), f"vector[N] v = {CALL};"),
        (MERGE.replace("merged = x_obs;", "if (N > 3) return x_obs; merged = x_obs;"), f"vector[N] v = {CALL};"),
        (MERGE.replace("return merged;", "return merged + 1;"), f"vector[N] v = {CALL};"),
    ],
)
def test_other_calls_are_left_alone(function: str, model: str) -> None:
    assert filled_in_place(read(function, model)) is None
