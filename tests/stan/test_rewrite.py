"""Rewritten programs: stanc takes them, and one of each kind gives the right numbers."""

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from external import accepted
from numpy.typing import NDArray
from texts import canonical

from stansub.errors import InputError
from stansub.stan import stanc, toolchain
from stansub.stan.library import Library, Model, Rng
from stansub.stan.recognise import recognise
from stansub.stan.rewrite import block_program, constants_program, range_program, silent
from stansub.stan.syntax import Program, Target, Tilde, calls, parse, tokenize, walk

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
HEADER = ROOT / "stansub/stan/cpp/stansub_blocks.hpp"
REWRITABLE = [*PROGRAMS.glob("*.stan"), ROOT / "stan_models/logistic_reduce_sum.stan"]

Vector = NDArray[np.float64]


def words(text: str) -> list[str]:
    return [token.text for token in tokenize(text)]


def check_rewritten(program: Program) -> Program:
    """Rewrite; whatever the program, the following holds."""
    code = accepted(block_program(program, recognise(program)))
    assert accepted(code) == code
    rewritten = parse(code)
    for name in ("data", "parameters", "transformed_parameters"):
        before, after = (words(p.text(getattr(p, name).inside)) for p in (program, rewritten))
        assert before == after
    assert not any(call.name.startswith("reduce_sum") for call in calls(rewritten))
    (quantities,) = rewritten.generated_quantities.statements
    assert not rewritten.generated_quantities.declarations
    assert not any(isinstance(statement, Target | Tilde) for statement in walk([quantities]))
    assert "stansub_put" in rewritten.text(quantities.span)
    return rewritten


@pytest.mark.parametrize("file", REWRITABLE, ids=lambda file: file.stem)
def test_programs_as_people_write_them(file: Path) -> None:
    check_rewritten(parse(stanc.canonical(file)))


TYPES = {
    "array[] int": "array[N] int",
    "array[] real": "array[N] real",
    "array[] vector": "array[N] vector[K]",
    "array[] row_vector": "array[N] row_vector[K]",
    "array[] matrix": "array[N] matrix[K, K]",
    "array[,] int": "array[N, K] int",
    "array[,] real": "array[N, K] real",
    "array[,] vector": "array[N, K] vector[K]",
    "array[,,] row_vector": "array[N, K, 2] row_vector[K]",
}


ORIGINS = ["data", "transformed data", "expression of data", "local"]
SUFFIXES = ["", "_lpdf", "_lupdf", "_lpmf", "_lupmf"]


@pytest.mark.parametrize(
    ("unsized", "suffix", "origin"),
    [(unsized, "", origin) for unsized in TYPES for origin in ORIGINS]
    + [
        (unsized, suffix, "expression of data")
        for unsized in TYPES
        for suffix in SUFFIXES[1:]
        if unsized.endswith("int") == suffix.endswith("mf")
    ],
)
def test_sliced_argument_of_every_type(unsized: str, suffix: str, origin: str) -> None:
    sized = TYPES[unsized]
    name = "f" + suffix.replace("_lu", "_l")
    sliced, transformed, local = "x", "", ""
    if origin == "transformed data":
        sliced, transformed = "x2", f"{sized} x2 = x;"
    elif origin == "expression of data":
        sliced = "x[order]"
    elif origin == "local":
        sliced, local = "x3", f"{sized} x3 = x;"
    program = canonical(f"""
        functions {{ real {name}({unsized} slice, int start, int end, real mu) {{ return mu * size(slice); }} }}
        data {{ int N; int K; array[N] int order; {sized} x; }}
        transformed data {{ {transformed} }}
        parameters {{ real mu; }}
        model {{ mu ~ normal(0, 1); {local} target += reduce_sum(f{suffix}, {sliced}, 1, mu); }}""")
    rewritten = check_rewritten(program)
    hoisted = [d.name for d in rewritten.transformed_data.declarations if d.name.startswith("stansub_")]
    assert hoisted == (["stansub_data_1"] if origin == "expression of data" else [])


@pytest.mark.parametrize("expression", ["u", "v", "u[order]", "w"])
def test_sliced_parameters(expression: str) -> None:
    program = canonical(f"""
        functions {{ real f_lpdf(array[] vector slice, int start, int end, array[] int g) {{
          return std_normal_lupdf(slice[1]); }} }}
        data {{ int N; array[N] int order; }}
        parameters {{ array[N] vector<lower=0>[2] u; }}
        transformed parameters {{ array[N] vector[2] v = u; }}
        model {{ array[N] vector[2] w = u; target += reduce_sum(f_lupdf, {expression}, 1, order); }}""")
    check_rewritten(program)


def test_parameters_of_every_constraint() -> None:
    kinds = [
        "real<lower=0> a1", "real<upper=a1> a2", "real<lower=a2, upper=a1> a3", "real<offset=1, multiplier=a1> a4",
        "vector[3] b1", "vector<lower=0>[3] b2", "row_vector<upper=a1>[3] b3", "matrix<lower=-1, upper=1>[2, 3] b4",
        "simplex[3] c1", "ordered[3] c2", "positive_ordered[3] c3", "unit_vector[3] c4",
        "corr_matrix[3] d1", "cov_matrix[3] d2", "cholesky_factor_corr[3] d3", "cholesky_factor_cov[3, 2] d4",
            "complex_vector[2] f2", "array[2] complex_matrix[2, 2] f3", "tuple(real<lower=0>, vector[2]) g1",
    ]  # fmt: skip
    types = {
        "real": "real", "vector": "vector", "row_vector": "row_vector", "matrix": "matrix", "simplex": "vector",
        "ordered": "vector", "positive_ordered": "vector", "unit_vector": "vector", "corr_matrix": "matrix",
        "cov_matrix": "matrix", "cholesky_factor_corr": "matrix", "cholesky_factor_cov": "matrix",
        "complex": "complex", "complex_vector": "complex_vector", "complex_matrix": "complex_matrix",
    }  # fmt: skip
    parameters = "".join(f"{kind};\n" for kind in kinds)
    start = f"data {{ int N; array[N] real y; }} parameters {{ {parameters} }} model {{ }}"
    arguments, passed = [], []
    for variable in canonical(start).parameters.declarations:
        depth = len(variable.array_dims)
        inner = "tuple(real, vector)" if variable.base == "tuple" else types[variable.base]
        array = "array[" + "," * (depth - 1) + "] " if depth else ""
        arguments.append(f"{array}{inner} {variable.name}")
        passed.append(variable.name)
    assert len(passed) == len(kinds)
    program = canonical(f"""
        functions {{
          real f(array[] real y, int start, int end, {", ".join(arguments)}) {{ return sum(y) * a1; }}
          real log_lik_range({", ".join(arguments)}, {", ".join(f"{a}_new" for a in arguments)}) {{ return a1; }}
        }}
        {start.replace("model { }", "")}
        model {{ target += reduce_sum(f, y, 1, {", ".join(passed)}); }}""")
    check_rewritten(program)
    twice = parse(accepted(range_program(program))).parameters.declarations
    assert [variable.name for variable in twice] == [*passed, *(f"{name}_new" for name in passed)]
    assert [str(one) for one in twice[len(passed) + 1].type.bounds] == ["upper=a1_new"]


def test_overloaded_partial_sums() -> None:
    rewritten = check_rewritten(
        canonical("""
        functions {
          real f(array[] real y, int start, int end, real mu) { return normal_lpdf(y | mu, 1); }
          real f(array[] real y, int start, int end, vector mu) { return normal_lpdf(y | mu[start:end], 1); }
          real f(array[] int y, int start, int end, real mu) { return poisson_lpmf(y | mu); }
          real f(array[] real y, int start, int end, real mu, real s) { return normal_lpdf(y | mu, s); }
        }
        data { int N; array[N] real y; }
        parameters { vector[N] mu; }
        model { target += reduce_sum(f, y, 1, mu); }""")
    )
    assert [function.name for function in rewritten.functions].count("stansub_sum") == 3


def test_what_the_likelihood_needs_is_carried_into_generated_quantities() -> None:
    rewritten = check_rewritten(
        canonical("""
        functions { real f(array[] real y, int start, int end, vector mu, real lp) {
          return normal_lpdf(y | mu[start:end], lp); } }
        data { int N; array[N] real y; vector[N] x; int k; }
        parameters { real a; real<lower=0> s; }
        model {
          int grainsize = 1, unused = 2;
          vector[N] mu;
          vector[N] elsewhere = x * a;
          real lp = normal_lupdf(a | 0, 1);
          for (n in 1:N) { mu[n] = a; a ~ normal(n, 1); print("n"); }
          elsewhere ~ normal(0, 1);
          if (k > 1) { mu += 1; target += a; } else { mu -= 1; }
          if (k > 2) {
            real shift = 2;
            mu += shift;
            if (k > 3) { s ~ normal(0, 1); } else { target += reduce_sum(f, y, grainsize, mu, lp); }
          }
        }""")
    )
    text = " ".join(words(rewritten.text(rewritten.generated_quantities.inside)))
    assert text == " ".join(
        words("""{
          vector[N] mu;
          real lp = normal_lpdf(a | 0, 1);
          for (n in 1 : N) { mu[n] = a; { } { } }
          if (k > 1) { mu += 1; { } } else { mu -= 1; }
          if (k > 2) {
            real shift = 2;
            mu += shift;
            if (!(k > 3)) { stansub_put_all(y, mu, lp); }
          }
        }""")
    )


def test_names_are_reserved() -> None:
    program = canonical("""
        functions { real log_lik_i(int i, real mu) { return mu; } }
        data { int N; } parameters { real stansub_n; }
        model { for (i in 1:N) target += log_lik_i(i, stansub_n); }""")
    with pytest.raises(InputError, match="'stansub_n'"):
        block_program(program, recognise(program))


def test_plain_programs_are_not_rewritten() -> None:
    program = canonical("parameters { real mu; } model { mu ~ normal(0, 1); }")
    with pytest.raises(ValueError, match="not rewritten"):
        block_program(program, recognise(program))


def test_silent_programs_keep_everything_but_profiles_and_prints() -> None:
    program = canonical("""
        functions { real f(real x) { print("profile (", x, ")"); return x; } }
        parameters { real mu; }
        model { if (mu > 0) print(mu); profile("a (") { mu ~ normal(0, 1); profile("b") { target += f(mu); } } }""")
    code = accepted(silent(program.code))
    assert not {"print", "profile"} & set(words(code))
    kept = [s for s in walk(parse(code).model.statements) if isinstance(s, Target | Tilde)]
    assert [code[slice(*statement.span)] for statement in kept] == ["mu ~ normal(0, 1);", "target += f(mu);"]
    unchanged = "parameters { real mu; } model { mu ~ normal(0, 1); }"
    assert silent(unchanged) == unchanged


def test_constants_program() -> None:
    program = parse(stanc.canonical(PROGRAMS / "log_lik_plain.stan"))
    written = parse(accepted(constants_program(program, "log_lik_lipschitz_i", "N")))
    assert written.parameters.declarations == ()
    (constants,) = written.generated_quantities.declarations
    assert (constants.name, constants.base, constants.sizes) == ("stansub_constants", "vector", ("N",))
    assert "log_lik_lipschitz_i(stansub_i, x)" in written.code
    assert "log_lik_lipschitz_i(3 - 1 + stansub_i, x)" in accepted(
        constants_program(program, "log_lik_lipschitz_i", "N - 2", first="3")
    )


def test_range_program() -> None:
    program = parse(stanc.canonical(PROGRAMS / "log_lik_plain.stan"))
    written = parse(accepted(range_program(program)))
    assert [p.name for p in written.parameters.declarations] == ["alpha", "beta", "alpha_new", "beta_new"]
    (constant,) = written.generated_quantities.declarations
    assert str(constant.value) == "log_lik_range(alpha, beta, alpha_new, beta_new, largest)"


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ("", "has no function log_lik_"),
        ("real log_lik_lipschitz_i(int i, real mu) { return 1; } real log_lik_range(real q) { return 1; }", "argument"),
    ],
)
def test_programs_without_usable_range_functions(functions: str, message: str) -> None:
    program = canonical(
        f"functions {{ {functions} }} data {{ int N; }} parameters {{ real mu; }} model {{ mu ~ normal(0, 1); }}"
    )
    with pytest.raises(InputError, match=message):
        constants_program(program, "log_lik_lipschitz_i", "N")
    with pytest.raises(InputError, match=message):
        range_program(program)


def test_a_parameter_named_like_another_at_the_proposal() -> None:
    program = canonical("""functions { real log_lik_range(real a, real a_new) { return 1; } }
        parameters { real a; real a_new; } model { a ~ normal(a_new, 1); }""")
    with pytest.raises(InputError, match="'a_new'"):
        range_program(program)


class Blocks:
    """The header's functions of a library, called as the decision loop does."""

    def __init__(self, library: Library) -> None:
        self.set_blocks = library.handle.stansub_set_blocks
        self.set_blocks.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
        self.set_blocks.restype = None
        self.n_units: Callable[[], int] = library.handle.stansub_n_units
        self.rng = Rng(library, 1)

    def log_lik(self, model: Model, theta: Vector, spans: list[tuple[int, int]]) -> Vector:
        starts, ends = np.array(spans, dtype=np.int32).reshape(-1, 2).T.copy()
        out = np.full(len(spans), np.nan)
        self.set_blocks(starts.ctypes.data, ends.ctypes.data, len(spans), out.ctypes.data)
        try:
            model.param_constrain(theta, include_gq=True, rng=self.rng)
        finally:
            self.set_blocks(None, None, -1, None)
        return out

    def log_density(self, model: Model, theta: Vector, spans: list[tuple[int, int]]) -> tuple[float, Vector]:
        starts, ends = np.array(spans, dtype=np.int32).reshape(-1, 2).T.copy()
        self.set_blocks(starts.ctypes.data, ends.ctypes.data, len(spans), None)
        try:
            return model.log_density_gradient(theta)
        finally:
            self.set_blocks(None, None, -1, None)


def compiled(stem: str) -> Library:
    program = parse(stanc.canonical(PROGRAMS / f"{stem}.stan"))
    code = block_program(program, recognise(program))
    return Library(toolchain.compile_library(code, name=stem, user_header=HEADER, stanc_args=["--allow-undefined"]))


def check_cuts(blocks: Blocks, model: Model, theta: Vector, each: Vector, rest: float) -> None:
    """Block log likelihoods against those of single units, densities against their sums."""
    n = each.size
    np.testing.assert_allclose(blocks.log_lik(model, theta, [(i, i) for i in range(1, n + 1)]), each, rtol=1e-12)
    spans = [(4, 9), (n, n), (1, 3)]
    expected = [each[a - 1 : b].sum() for a, b in spans]
    np.testing.assert_allclose(blocks.log_lik(model, theta, spans), expected, rtol=1e-12)
    assert blocks.n_units() == n
    value, gradient = blocks.log_density(model, theta, spans)
    np.testing.assert_allclose(value, rest + sum(expected), rtol=1e-12)
    nothing, without = blocks.log_density(model, theta, [])
    np.testing.assert_allclose(nothing, rest, rtol=1e-12)
    assert blocks.n_units() == n
    full, all_of_it = model.log_density_gradient(theta)
    np.testing.assert_allclose(full, rest + each.sum(), rtol=1e-12)
    assert not np.allclose(gradient, without)
    pieces = [blocks.log_density(model, theta, [span])[1] - without for span in ((1, 5), (6, n))]
    np.testing.assert_allclose(without + sum(pieces), all_of_it, rtol=1e-9)
    # With nothing set, an ordinary sampler may evaluate generated quantities; they have no variables.
    assert model.param_constrain(theta, include_gq=True, rng=blocks.rng).size == model.param_num()


def logpdf(x: Any, mean: Any = 0.0, sd: Any = 1.0) -> Any:
    return -0.5 * ((x - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)


@pytest.mark.slow
def test_values_of_a_rewritten_reduce_sum() -> None:
    rng = np.random.default_rng(1)
    n, k, t = 30, 3, 20
    y, w = rng.integers(0, 2, n), rng.normal(size=n)
    x, rows, training = rng.normal(size=(k, n)), rng.normal(size=(n, k)), rng.permutation(n)[:t]
    data = {"N": n, "K": k, "y": y, "w": w, "x": x, "T": t, "training": training + 1, "rows": rows}
    library = compiled("expressions")
    model = library.model(orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY))
    theta = rng.normal(size=k + 2)
    beta, z = theta[:k], 1 + 2 * theta[k:]
    eta = x.T[training] @ beta * (z[0] + 2)
    each = np.where(y[training] == 1, -np.log1p(np.exp(-eta)), -np.log1p(np.exp(eta)))
    rest = logpdf(beta).sum() + logpdf(z).sum() + 2 * np.log(2)
    blocks = Blocks(library)
    check_cuts(blocks, model, theta, each, rest)

    # Blocks set in one thread are not seen by another.
    blocks.set_blocks(None, None, 0, None)
    with ThreadPoolExecutor(1) as pool:
        elsewhere = pool.submit(model.log_density, theta).result()
    np.testing.assert_allclose(elsewhere, rest + each.sum(), rtol=1e-12)
    np.testing.assert_allclose(model.log_density(theta), rest, rtol=1e-12)
    blocks.set_blocks(None, None, -1, None)


@pytest.mark.slow
def test_values_of_a_rewritten_loop() -> None:
    rng = np.random.default_rng(2)
    n, first = 30, 4
    y = rng.normal(size=n)
    data = {"N": n, "first": first, "y": y, "prior_only": 0}
    library = compiled("log_lik_overloaded")
    blocks = Blocks(library)
    model = library.model(orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY))
    theta = 0.5 * rng.normal(size=model.dim)
    mu, log_sigma, cut, log_gap, log_above = theta
    cuts = np.array([cut, cut + np.exp(log_gap)])
    each = logpdf(y[first : n - 1], mu + cut, 2 * np.exp(log_sigma))
    rest = logpdf(mu) + logpdf(cuts).sum() + log_sigma + log_gap + log_above
    check_cuts(blocks, model, theta, each, rest)

    prior = library.model(orjson.dumps(data | {"prior_only": 1}, option=orjson.OPT_SERIALIZE_NUMPY))
    np.testing.assert_allclose(prior.log_density(theta), rest, rtol=1e-12)
    assert np.isnan(blocks.log_lik(prior, theta, [(1, 2)])).all()
    assert blocks.n_units() == 0
