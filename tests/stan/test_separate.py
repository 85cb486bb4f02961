"""Expressions as trees, what they are for one observation, and programs with a function log_lik_i."""

from pathlib import Path

import pytest

from stansub.errors import InputError
from stansub.stan import stanc
from stansub.stan.elementwise.elements import Elements, NotSeparableError, Shape
from stansub.stan.elementwise.separate import separations
from stansub.stan.recognise import recognise
from stansub.stan.syntax import Infix, Prefix, Program, UnsizedType, parse, parse_expression

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.parametrize(
    "text",
    [
        "a + b * c ^ -2",
        "x[n, :]' * beta",
        "normal_lpdf(y | a + b, s)",
        "y[2 : N] - y[: (N - 1)]",
        "a ? b : c ? d : e",
        "{1, 2}",
        "[a, b]' .* v",
        "f()",
        "a == 1 && !b",
        'reject("x is ", x)',
    ],
)
def test_expressions_are_written_as_they_were_read(text: str) -> None:
    assert str(parse_expression(text)) == text


def test_operators_bind_as_in_stan() -> None:
    added = parse_expression("a - b - c * d")
    assert isinstance(added, Infix)
    assert (str(added.left), str(added.right)) == ("a - b", "c * d")
    power = parse_expression("-a ^ b ^ c")
    assert isinstance(power, Prefix)
    assert isinstance(power.operand, Infix)
    assert str(power.operand.right) == "b ^ c"
    assert [str(one) for one in parse_expression("f(x)[1]").inner()] == ["f(x)[1]", "f(x)", "x", "1"]


@pytest.mark.parametrize("text", ["a +", "f(a", "1 : N", "a b", ")", "t.x"])
def test_what_is_no_expression(text: str) -> None:
    with pytest.raises(InputError):
        parse_expression(text)


SHAPES = {
    "N": Shape(UnsizedType("real")),
    "k": Shape(UnsizedType("real")),
    "s": Shape(UnsizedType("real")),
    "y": Shape(UnsizedType("vector"), 0),
    "g": Shape(UnsizedType("real", 1), 0),
    "X": Shape(UnsizedType("matrix"), 0),
    "Z": Shape(UnsizedType("matrix"), 1),
    "c": Shape(UnsizedType("real", 2), 1),
    "v": Shape(UnsizedType("vector", 1), 0),
    "mu": Shape(UnsizedType("vector"), 0),
    "m": Shape(UnsizedType("vector", 1), 1),
    "b": Shape(UnsizedType("vector")),
    "a": Shape(UnsizedType("vector", 1)),
    "L": Shape(UnsizedType("matrix")),
    "r": Shape(UnsizedType("row_vector")),
}
AT = Elements("N", "i", SHAPES, frozenset({"mu", "m"}))


def at_one(text: str, elements: Elements = AT) -> str:
    return str(elements.element(parse_expression(text)))


@pytest.mark.parametrize(
    ("whole", "element"),
    [
        ("y - s", "y[i] - s"),
        ("X * b + s", "X[i] * b + s"),
        ("(r * Z)' .* y", "(r * Z[:, i]) * y[i]"),
        ("Z' * b", "Z[:, i]' * b"),
        ("X .* X * b", "X[i] .* X[i] * b"),
        ("b[g] ./ y", "b[g[i]] / y[i]"),
        ("y[g]", "y[g[i]]"),
        ("L[g, k] + c[k]", "L[g[i], k] + c[k, i]"),
        ("a[k][g]", "a[k, g[i]]"),
        ("v", "v[i]"),
        ("mu + m[k]", "mu + m[k]"),
        ("rep_vector(s + 1, N) * 2", "(s + 1) * 2"),
        ("rep_vector(0, size(y))", "0"),
        ("zeros_vector(N) + mu", "0 + mu"),
        ("inv_logit(to_vector(g) * s)", "inv_logit(g[i] * s)"),
        ("rows_dot_product(X, X)", "dot_product(X[i], X[i])"),
        ("append_col(y, X) * b", "append_col(y[i], X[i]) * b"),
        ("X[:, 1] * s", "X[i, 1] * s"),
        ("s > 0 ? y : mu", "s > 0 ? y[i] : mu"),
        ("y[3] * s", "y[3] * s"),
        ("b[1 : 2]", "b[1 : 2]"),
    ],
)
def test_elements_of_expressions(whole: str, element: str) -> None:
    assert at_one(whole) == element


@pytest.mark.parametrize(
    "text",
    ["mean(y)", "X' * y", "y[2 : N]", "y' * mu", "mu[1]", "L * y", "X * Z", "f(mu)", "log_sum_exp(y)", "[y, y]", "y.1"],
)
def test_what_takes_observations_together_has_no_element(text: str) -> None:
    with pytest.raises(NotSeparableError):
        at_one(text)


def test_elements_in_a_loop() -> None:
    within = AT.within("n")
    assert at_one("mu[n] + y[n - 1] + m[k, n] + mean(y) + X[n] * b", within) == (
        "mu + y[i - 1] + m[k] + mean(y) + X[i] * b"
    )
    for text in ("mu[n - 1]", "sum(mu)"):
        with pytest.raises(NotSeparableError):
            at_one(text, within)


def written(code: str, tmp_path: Path) -> list[Program | NotSeparableError]:
    file = tmp_path / "program.stan"
    file.write_text(code)
    program = parse(stanc.canonical(file))
    found = list(separations(program))
    return [
        one if isinstance(one, NotSeparableError) else parse(stanc.formatted(one, name="written.stan")) for one in found
    ]


@pytest.mark.parametrize("name", sorted(file.stem for file in (PROGRAMS / "no_sums").glob("*.stan")))
def test_there_is_no_such_form_of_what_is_no_sum(name: str, tmp_path: Path) -> None:
    found = written((PROGRAMS / "no_sums" / f"{name}.stan").read_text(), tmp_path)
    assert found
    assert all(isinstance(one, NotSeparableError) for one in found)


WRITTEN = sorted(file.stem for file in (PROGRAMS / "sums").glob("*.stan"))
NONE = {"accumulated", "autoregression_residuals"}


@pytest.mark.parametrize("name", WRITTEN)
def test_written_programs_are_valid_and_recognised(name: str, tmp_path: Path) -> None:
    first = written((PROGRAMS / "sums" / f"{name}.stan").read_text(), tmp_path)[0]
    if name in NONE:
        assert isinstance(first, NotSeparableError)
    else:
        assert isinstance(first, Program)
        form = recognise(first)
        assert form.kind == "log_lik_i"
        # Nothing else is left that is computed from all observations at every evaluation.
        assert {remark.statement for remark in form.warnings} <= {"a ~ normal(mean(y), 1);"}


@pytest.mark.parametrize(
    ("data", "likelihood", "term"),
    [
        ("vector[N] y; matrix[N, K] x;", "y ~ normal(x * beta, s);", "normal_lpdf(y[i] | x[i] * beta, s)"),
        ("vector[N] y; matrix[K, N] x;", "y ~ normal(x' * beta, s);", "normal_lpdf(y[i] | x[ : , i]' * beta, s)"),
        (
            "array[N] int<lower=0, upper=1> y; matrix[N, K] x;",
            "y ~ bernoulli_logit_glm(x, s, beta);",
            "bernoulli_logit_lpmf(y[i] | s + x[i] * beta)",
        ),
        (
            "vector[N] y; array[N] int g;",
            "for (n in 1:N) y[n] ~ student_t(4, beta[g[n]], s);",
            "student_t_lpdf(y[n] | 4, beta[g[n]], s)",
        ),
        ("vector[N] y;", "y ~ normal(beta[1], s) T[0, 9];", "log_diff_exp(normal_lcdf(9 | beta[1], s),"),
        ("vector[N] y;", "y ~ normal(beta[1], s) T[0, ];", "- normal_lccdf(0 | beta[1], s)"),
        ("array[N] vector[K] y;", "y ~ multi_normal(beta, identity_matrix(K));", "multi_normal_lpdf(y[i] | beta,"),
        ("vector[N] y;", "target += -normal_lupdf(y | 0, s);", "-normal_lpdf(y[i] | 0, s)"),
        ("vector[N] y;", 'profile("p") { if (K > 1) { y ~ normal(0, s); } }', "normal_lpdf(y[i] | 0, s)"),
        ("vector[N] y; vector[N] w;", "target += w' * w + sum(y * s);", ""),
        ("vector[N] y;", "real t = target(); y ~ normal(t, s);", ""),
        ("vector[N] y;", "y ~ normal(beta[1], s); for (n in 2:N) y[n] ~ normal(y[n - 1], s);", ""),
        ("array[N] int y;", "y ~ poisson(s) T[1, ];", ""),
    ],
)
def test_likelihood_statements(data: str, likelihood: str, term: str, tmp_path: Path) -> None:
    code = f"data {{ int N; int K; {data} }} parameters {{ vector[K] beta; real<lower=0> s; }}"
    first = written(f"{code} model {{ beta ~ normal(0, 1); {likelihood} }}", tmp_path)[0]
    if term:
        assert isinstance(first, Program)
        assert term in " ".join(first.code.split())
        assert "beta ~ normal(0, 1);" in first.code
    else:
        assert isinstance(first, NotSeparableError)


def test_what_was_computed_for_all_observations_is_still_output(tmp_path: Path) -> None:
    program = written((PROGRAMS / "sums" / "grouped_regression.stan").read_text(), tmp_path)[0]
    assert isinstance(program, Program)
    assert [one.name for one in program.transformed_parameters.declarations] == ["effect"]
    assert [one.name for one in program.generated_quantities.declarations] == ["eta", "largest"]
