"""Programs written for stansub's own evaluations: stanc takes them."""

from pathlib import Path

import pytest
from external import accepted
from texts import canonical

from stansub.errors import InputError
from stansub.stan.passes.rewrite import (
    constants_program,
    in_one_slice,
    range_program,
    reserve_names,
    silenced,
    without_continue,
)
from stansub.stan.syntax import Target, Tilde, parse, tokenize, walk
from stansub.stan.toolchain import stanc

PROGRAMS = Path(__file__).parent / "programs"


def words(text: str) -> list[str]:
    return [token.text for token in tokenize(text)]


@pytest.mark.parametrize(
    ("call", "direct"),
    [
        ("reduce_sum(f_lupdf, y, 1, mu)", "f_lupdf(y | 1, size(y), mu)"),
        ("reduce_sum_static(g, y[which], N %/% 10, mu)", "g(y[which], 1, size(y[which]), mu)"),
        ("reduce_sum(g, y, 1, mu + reduce_sum(g, y, 1, mu))", "g(y, 1, size(y), mu + g(y, 1, size(y), mu))"),
    ],
)
def test_a_reduce_sum_of_one_slice(call: str, direct: str) -> None:
    code = """
        functions {
          real f_lpdf(array[] real y, int start, int end, real mu) { return normal_lupdf(y | mu, 1); }
          real g(array[] real y, int start, int end, real mu) { return normal_lpdf(y | mu, 1); }
          real g(array[] real y, int start, int end, vector mu) { return normal_lpdf(y | mu[start:end], 1); }
        }
        data { int N; array[N] real y; array[N] int which; }
        parameters { real mu; }
        model { mu ~ normal(0, 1); target += %s; }"""
    assert accepted(in_one_slice(canonical(code % call)).code) == accepted(code % direct)
    plain = canonical(code % "g(y, 1, N, mu)")
    assert in_one_slice(plain) is plain


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
          real log_lik_range({", ".join(arguments)}, {", ".join(f"{a}_new" for a in arguments)}) {{ return a1; }}
        }}
        {start.replace("model { }", "")}
        model {{ y ~ normal(a1, 1); }}""")
    twice = parse(accepted(range_program(program))).parameters.declarations
    assert [variable.name for variable in twice] == [*passed, *(f"{name}_new" for name in passed)]
    assert [str(one) for one in twice[len(passed) + 1].type.bounds] == ["upper=a1_new"]


def test_names_are_reserved() -> None:
    with pytest.raises(InputError, match="'stansub_n'"):
        reserve_names(canonical("data { int N; } parameters { real stansub_n; } model { stansub_n ~ normal(0, 1); }"))


def test_silent_programs_keep_everything_but_profiles_and_prints() -> None:
    program = canonical("""
        functions { real f(real x) { print("profile (", x, ")"); return x; } }
        parameters { real mu; }
        model { if (mu > 0) print(mu); profile("a (") { mu ~ normal(0, 1); profile("b") { target += f(mu); } } }""")
    code = accepted(silenced(program).code)
    assert not {"print", "profile"} & set(words(code))
    kept = [s for s in walk(parse(code).model.statements) if isinstance(s, Target | Tilde)]
    assert [code[slice(*statement.span)] for statement in kept] == ["mu ~ normal(0, 1);", "target += f(mu);"]
    unchanged = canonical("parameters { real mu; } model { mu ~ normal(0, 1); }")
    assert silenced(unchanged) is unchanged


def test_constants_program() -> None:
    program = parse(stanc.canonical(PROGRAMS / "log_lik_plain.stan"))
    written = parse(accepted(constants_program(program, "log_lik_lipschitz_i", "N")))
    assert written.parameters.declarations == ()
    (constants,) = written.generated_quantities.declarations
    assert (constants.name, constants.base, constants.sizes) == ("stansub_constants", "vector", ("N",))
    assert "log_lik_lipschitz_i(stansub_i, x)" in written.code


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


@pytest.mark.parametrize(
    ("body", "branched"),
    [
        ("if (i == 2) continue; target += a;", "if (!(i == 2)) { target += a; }"),
        ("if (i == 2) { target += 1; continue; } target += a;", "if (i == 2) { target += 1; } else { target += a; }"),
        (
            "for (j in 1 : 2) { if (j == i) continue; real b = a; if (j > 1) continue; target += b; }",
            "for (j in 1 : 2) { if (!(j == i)) { real b = a; if (!(j > 1)) { target += b; } } }",
        ),
    ],
)
def test_what_follows_a_continue_is_in_a_branch(body: str, branched: str) -> None:
    code = "parameters { real a; } model { for (i in 1 : 3) { %s } }"
    assert accepted(without_continue(canonical(code % body)).code) == accepted(code % branched)
    other = canonical(code % "if (i == 2) break; target += a;")
    assert without_continue(other) is other
