"""Values assigned to listed observations, observation by observation: how programs read, and which are left alone."""

from pathlib import Path

import pytest
from texts import canonical, words

from stansub.stan import source
from stansub.stan.analysis import Analysis
from stansub.stan.parts import divide
from stansub.stan.passes.scatter import observation_by_observation
from stansub.stan.reading.sizes import main_size
from stansub.stan.structures import named
from stansub.stan.syntax import Block, Program, parse
from stansub.stan.toolchain import stanc

ROOT = Path(__file__).parents[2]
BRMS = ROOT / "benchmarks" / "reach" / "programs" / "brms_missing.stan"
MISSING = ROOT / "tests" / "programs" / "missing_values.stan"

HEAD = """
data {
  int<lower=1> N; int<lower=0> M; int<lower=0> K; int D; int c; vector[N] y; vector[N] x; matrix[N, D] X;
  array[M] int gone; array[M] int also; array[K] int rest; array[N] int g; vector[K] known; array[K] real others;
}
parameters { real a; real b; vector[M] guess; vector[D] beta; matrix[M, D] many; real<lower=0> s; }
"""
LIKELIHOOD = "y ~ normal(a + b * v, s); v ~ normal(a, 1);"


def read(code: str) -> Program:
    inside = code if "model {" in code else f"model {{ vector[N] v = x; {code} {LIKELIHOOD} }}"
    return canonical(HEAD + inside)


def inside(program: Program | None, block: str) -> str:
    assert program is not None
    found = getattr(program, block)
    assert isinstance(found, Block)
    return words(program.text(found.inside))


def model_of(code: str) -> str:
    """What stands in the model between the variable and the likelihood."""
    text = inside(observation_by_observation(read(code)), "model")
    return text.removeprefix(words("vector[N] v = x;")).removesuffix(words(LIKELIHOOD)).strip()


def data_of(code: str) -> str:
    return inside(observation_by_observation(read(code)), "transformed_data")


def place(k: int, listed: str = "gone", entry: str = "stansub_entry", upper: str = "M") -> str:
    """The inverse of a list."""
    return words(f"""
        array[N] int stansub_place_{k} = rep_array(0, N);
        for ({entry} in 1 : {upper}) {{ stansub_place_{k}[{listed}[{entry}]] = {entry}; }}""")


def filled(k: int, value: str, operator: str = "=") -> str:
    return words(f"""
        for (stansub_row_0 in 1 : N) {{
          if (stansub_place_{k}[stansub_row_0] != 0) {{ v[stansub_row_0] {operator} {value}; }}
        }}""")


GUESS = "guess[stansub_place_1[stansub_row_0]]"


def test_a_slice() -> None:
    assert data_of("v[gone] = guess;") == place(1)
    assert model_of("v[gone] = guess;") == filled(1, GUESS)


@pytest.mark.parametrize(
    ("loop", "value", "operator"),
    [
        ("for (k in 1:M) v[gone[k]] = guess[k];", GUESS, "="),
        ("for (k in 1:M) { v[gone[k]] += guess[k]; }", GUESS, "+="),
        ("for (k in 1:M) v[gone[k]] = a + v[gone[k]] * guess[k];", f"a + v[stansub_row_0] * {GUESS}", "="),
    ],
)
def test_loops(loop: str, value: str, operator: str) -> None:
    assert data_of(loop) == place(1, entry="k")
    assert model_of(loop) == filled(1, value, operator)


def test_a_part_of_a_list() -> None:
    assert data_of("v[gone[1:c]] = guess[1:c];") == place(1, listed="gone[1 : c]", upper="size(gone[1 : c])")
    loop = "for (k in 1:c) v[gone[2:M][k]] = v[gone[2:M][k]] + guess[k];"
    assert data_of(loop) == place(1, listed="gone[2 : M]", entry="k", upper="c")
    assert model_of(loop) == filled(1, f"v[stansub_row_0] + {GUESS}")


def test_values_that_are_computed_first() -> None:
    assert model_of("v[gone] = a + s * guess;") == words(f"""
        {{
          vector[M] stansub_values = a + s * guess;
          {filled(1, "stansub_values[stansub_place_1[stansub_row_0]]")}
        }}""")


def test_several_lists() -> None:
    code = "v[gone] = guess; for (k in 1:M) { v[also[k]] += guess[k]; v[gone[k]] *= b; }"
    second, third = place(2, listed="also", entry="k"), place(3, entry="k")
    assert data_of(code) == f"{place(1)} {second} {third}"
    added = filled(2, GUESS.replace("place_1", "place_2"), "+=")
    assert model_of(code) == f"{filled(1, GUESS)} {added} {filled(3, 'b', '*=')}"


@pytest.mark.parametrize("code", ["v[rest] = known;", "for (k in 1:K) v[rest[k]] = known[k] + c;"])
def test_values_that_are_data_are_data_of_each_observation(code: str) -> None:
    made = data_of(code)
    assert "vector [ N ] stansub_value_1 = rep_vector ( 0 , N ) ;" in made
    assert "stansub_value_1 [ stansub_row_0 ] = known [ stansub_place_1 [ stansub_row_0 ] ]" in made
    assert model_of(code) == filled(1, "stansub_value_1[stansub_row_0]")
    parts = divide(observation_by_observation(read(code)) or read(code))
    assert parts is not None
    assert not {"rest", "known"} & {one.name for one in parts.declarations}


def test_columns_and_rows_of_matrices() -> None:
    head = "model { matrix[N, D] W = X;"
    tail = "y ~ normal_id_glm(W, a, beta, s); }"
    whole = observation_by_observation(read(f"{head} W[gone] = many; {tail}"))
    column = observation_by_observation(read(f"{head} W[gone, 2] = guess; {tail}"))
    each = observation_by_observation(read(f"{head} for (k in 1:M) W[gone[k], also[k]] = guess[k]; {tail}"))
    assert words("W[stansub_row_0] = many[stansub_place_1[stansub_row_0]];") in inside(whole, "model")
    assert words(f"W[stansub_row_0, 2] = {GUESS};") in inside(column, "model")
    assert words("array[N, D] int stansub_place_1 = rep_array(0, N, D);") in inside(each, "transformed_data")
    assert words("stansub_place_1[gone[k], also[k]] = k;") in inside(each, "transformed_data")
    at = "stansub_row_0, stansub_row_1"
    assert words(f"W[{at}] = guess[stansub_place_1[{at}]];") in inside(each, "model")


def test_transformed_parameters_and_branches() -> None:
    program = read(f"""
        transformed parameters {{ vector[N] v = x; v[gone] = guess; real twice = 2 * a; }}
        model {{ {LIKELIHOOD} if (c > 0) {{ vector[N] u = x; u[also] = guess; y ~ normal(u, s); }} }}
        generated quantities {{ real e = v[1]; }}""")
    found = observation_by_observation(program)
    assert filled(1, GUESS) in inside(found, "transformed_parameters")
    assert words("u[stansub_row_0] = guess[stansub_place_2[stansub_row_0]];") in inside(found, "model")
    for block in ("data", "parameters", "generated_quantities"):
        assert inside(found, block) == inside(program, block)


@pytest.mark.parametrize(
    "code",
    [
        "v[2:N] = x[2:N];",
        "v[{1, 2}] = guess[1:2];",
        "v[3] = a;",
        "array[M] int here = gone; v[here] = guess;",  # a local list
        "for (k in 1:M) { real e = guess[k]; v[gone[k]] = e; }",
        "for (k in 1:M) { v[gone[k]] = guess[k]; target += normal_lpdf(guess[k] | 0, 1); }",
        "for (k in 1:M) v[gone[k] + 1] = guess[k];",
        "for (n in 1:N) v[n] = x[n] * b;",
        "for (r in 1:2) v[gone] = r * guess;",
        "int m = M; for (k in 1:m) v[gone[k]] = guess[k];",
        "vector[D] u = beta; u[gone] = guess; target += sum(u);",  # nothing of observations
        "int n = N; vector[n] u = x; u[gone] = guess; y ~ normal(u, s);",
        "matrix[N, D] W = X; W[gone, gone] = many; y ~ normal_id_glm(W, a, beta, s);",
        "matrix[N, D] W = X; for (k in 1:M) W[1, gone[k]] = guess[k]; y ~ normal_id_glm(W, a, beta, s);",
        "{ vector[N] u = x; u[gone] = guess; y ~ normal(u, s); } { vector[D] u = beta; u ~ normal(0, 1); }",
    ],
)
def test_programs_that_are_left_alone(code: str) -> None:
    assert observation_by_observation(read(code)) is None


def test_what_is_written_is_not_written_again() -> None:
    found = observation_by_observation(read("v[gone] = guess;"))
    assert found is not None
    assert observation_by_observation(found) is None


@pytest.mark.parametrize("file", [BRMS, MISSING], ids=lambda file: file.stem)
def test_inverses_are_cut_and_lists_are_not_read(file: Path) -> None:
    program = source.read(file).program
    parts, before = divide(observation_by_observation(program) or program), divide(program)
    assert parts is not None
    assert parts.sizes == ("N",)
    given = {one.name: one for one in parts.declarations}
    places = [one for name, one in given.items() if name.startswith("stansub_place_")]
    assert len(places) == (1 if file == BRMS else 4)
    assert all(one.sizes[0] == "N" and one in parts.computed for one in places)
    lists = {one.name for one in program.data.declarations if one.base == "int" and one.array_dims}
    assert not lists & set(given)
    assert before is None or lists & {one.name for one in before.declarations}


def test_an_inverse_of_the_user() -> None:
    """It says something of each observation, unlike a list of rows, which is made anew for those of a block."""
    inverse = "transformed data { array[N] int at = rep_array(0, N); for (k in 1:M) at[gone[k]] = k; }"
    model = "model { for (n in 1:N) y[n] ~ normal(at[n] ? guess[at[n]] : x[n], s); }"
    code = HEAD.replace("parameters {", f"{inverse} parameters {{") + model
    parts = divide(canonical(code))
    assert parts is not None
    assert [one.name for one in parts.computed] == ["at"]
    assert "transformed data" not in parts.code


def test_an_outcome_that_is_known_in_parts_is_counted_by_what_sizes_no_parameters() -> None:
    program = parse(
        stanc.canonical_code(
            """
            data { int M; int N; array[M] int gone; vector[N] x; }
            parameters { vector[M] guess; real a; }
            model { vector[N] v = x; v[gone] = guess; v ~ normal(a, 1); }""",
            "program",
        )
    )
    assert main_size(program) == "N"
    assert named(program) is None
    assert observation_by_observation(program) is not None


@pytest.mark.parametrize("file", [BRMS, MISSING], ids=lambda file: file.stem)
def test_missing_values_are_no_parameters_of_each_observation(file: Path) -> None:
    program = source.read(file).program
    assert named(program) is None
    assert not list(Analysis.of(program).doubts())
