"""How terms depend on the observation's index: examples of each kind, and random programs against their evaluation."""

from itertools import count
from typing import Any

import numpy as np
import pytest
from evaluate import log_density
from hypothesis import given, settings
from hypothesis import strategies as st

from stansub.stan.reading.reach import NONE, Reach, entries, terms
from stansub.stan.syntax import Program, parse, printed, tokenize
from stansub.stan.toolchain import stanc
from stansub.stan.toolchain.library import Library

HEAD = """functions {
  real bent(real u, real v) { if (u > 0.2) { return u * v; } return tanh(u) + v; }
  real spread(vector u, real v) { real most = 0; for (i in 1 : size(u)) { most += square(u[i] - v); } return most; }
}
data { int N; int J; vector[N] y; vector[N] x; array[N] int g; array[J] int h; vector[J] w; matrix[N, 2] X; }
"""
PARAMETERS = "parameters { real a; vector[J] u; vector[2] b; }"
OWN, GATHERED, OFFSET, FIXED = Reach.OWN, Reach.GATHERED, Reach.OFFSET, Reach.FIXED
SUMMARY, TOTAL = Reach.SUMMARY, Reach.TOTAL


def read(model: str, transformed: str = "") -> Program:
    return parse(f"{HEAD} {PARAMETERS} transformed parameters {{ {transformed} }} model {{ {model} }}")


@pytest.mark.parametrize(
    ("model", "reach"),
    [
        ("a ~ normal(0, 1);", NONE),
        ("u ~ normal(w, 1);", NONE),
        ("y ~ normal(a + 2 * x, 1);", OWN),
        ("y ~ normal(X * b + a, 1);", OWN),
        ("y ~ normal(X[ : , 1] * a, 1);", OWN),
        ("target += sum(y .* x) + normal_lpdf(y | a, 1);", OWN),
        ("for (n in 1 : N) y[n] ~ normal(bent(x[n], a) + X[n] * b, 1);", OWN),
        ("for (n in 1 : size(y)) y[n] ~ normal(a, 1);", OWN),
        ("vector[N] m = a + x; for (n in 1 : N) { real k = m[n]; if (x[n] > 0) k += 1; y[n] ~ normal(k, 1); }", OWN),
        ("if (N > 0) y ~ normal(a, 1);", OWN),
        ("if (size(y) >= 1) y ~ normal(a, 1);", OWN),
        ("if (N > 1) y ~ normal(a, 1);", OWN | SUMMARY),
        ("y ~ normal(u[g], 1);", OWN | GATHERED),
        ("for (n in 1 : N) y[n] ~ normal(u[h[g[n]]], 1);", OWN | GATHERED),
        ("for (n in 2 : N) y[n] ~ normal(y[n - 1], 1);", OWN | OFFSET),
        ("y[2 : N] ~ normal(y[1 : N - 1], 1);", OWN | OFFSET),
        ("for (n in 1 : N) y[n] ~ normal(a * n, 1);", OWN | OFFSET),
        ("for (n in 1 : N) y[n] ~ normal(x[g[n]], 1);", OWN | OFFSET),
        ("y ~ normal(a + x - mean(x), 1);", OWN | SUMMARY),
        ("y ~ normal(a * x[1], 1);", OWN | FIXED),
        ("for (j in 1 : J) for (n in h[j] : h[j] + 1) y[n] ~ normal(u[j], 1);", OWN | FIXED),
        ("y ~ normal(a / N, 1);", OWN | SUMMARY),
        ("y ~ normal(mean(a * x), 1);", OWN | TOTAL),
        ("real s = 0; for (n in 1 : N) s += a * x[n]; y ~ normal(s, 1);", OWN | TOTAL),
        ("real s = a; for (n in 1 : N) { s = y[n] - s; s ~ normal(0, 1); }", OWN | TOTAL),
        # Variables outside the loop that each of its runs computes first, or does not.
        ("vector[2] s; for (n in 1 : N) { for (k in 1 : 2) s[k] = b[k] * x[n]; target += log_sum_exp(s); }", OWN),
        ("real s; for (n in 1 : N) if (x[n] > 0) { s = a * x[n]; s *= 2; y[n] ~ normal(s, 1); }", OWN),
        ("real s = 0; for (n in 1 : N) { if (x[n] > 0) { s = x[n]; } y[n] ~ normal(a * s, 1); }", OWN | TOTAL),
        ("real s; for (n in 1 : N) { s = a * x[n]; y[n] ~ normal(s, 1); } y ~ normal(s, 1);", OWN | TOTAL),
        ("target += -spread(y, a);", OWN | SUMMARY),
        ("target += log_sum_exp(x * a);", OWN | TOTAL),
        ("y ~ normal((b' * X')', 1);", OWN),
        ("y ~ normal(X' * x * a, 1);", OWN | SUMMARY),
        ("target += 2 * normal_lpdf(y | a, 1) + dot_product(x, a * y);", OWN),
        ("y ~ normal(rows_dot_product(X, X) * a, 1);", OWN),
        ("matrix[N, 2] m = rep_matrix(0, N, 2); y ~ normal(m * b, 1);", OWN),
        ("array[N] vector[2] v; for (n in 1 : N) v[n] = X[n]'; v ~ multi_normal(b, identity_matrix(2));", OWN),
        ("real s = a; for (n in 1 : N) s += normal_lpdf(y[n] | a, 1); target += s;", OWN),
        ("real s = a; for (n in 1 : N) { s += a * x[n]; target += s; }", OWN | TOTAL),
    ],
)
def test_kinds(model: str, reach: Reach) -> None:
    found = terms(read(model), "N")
    assert found[-1].reach == reach


@pytest.mark.parametrize(
    ("model", "entering"),
    [
        ("y ~ normal(a + x, 1);", []),
        ("y ~ normal(x - mean(x), 1);", ["y ~ normal(x - mean(x), 1);"]),
        ("real s = log_sum_exp(x * a); y ~ normal(s, 1); x ~ normal(s, 1);", ["real s = log_sum_exp(x * a);"]),
        ("y ~ normal(spread(x, a), 1);", []),
        ("target += -spread(y, a); y[2 : N] ~ normal(x[1 : N - 1], 1);", ["y[2 : N] ~ normal(x[1 : N - 1], 1);"]),
    ],
)
def test_where_other_rows_come_in(model: str, entering: list[str]) -> None:
    program = read(model)
    assert [program.text(one.statement.span) for one in entries(program, "N")] == entering


def test_parameters_as_many_as_the_observations_are_of_other_rows() -> None:
    program = parse("data { int N; vector[N] y; } parameters { vector[N] z; } model { y ~ normal(z, 1); }")
    assert [program.text(one.statement.span) for one in entries(program, "N")] == ["vector[N] z;"]


def test_transformed_data_are_data() -> None:
    data = "data { int N; vector[N] y; } transformed data { vector[N] z = y - mean(y); } parameters { real a; }"
    assert [one.reach for one in terms(parse(f"{data} model {{ z ~ normal(a, 1); }}"), "N")] == [OWN]


class Sources:
    """Text of random programs, in which most expressions are of one observation."""

    def __init__(self, draw: Any) -> None:
        self.draw, self.numbers = draw, count(1)

    def one(self, *choices: str) -> str:
        return str(self.draw(st.sampled_from(choices)))

    def number(self, depth: int, local: tuple[str, ...], index: str) -> str:
        """An expression that is a number, in a loop over observations if there is an index."""
        leaves = ["a", "0.5", "b[1]", "u[1]", "w[h[1]]", *local]
        if index:
            leaves += [f"x[{index}]", f"y[{index}]", f"u[g[{index}]]", f"u[h[g[{index}]]]", f"X[{index}, 2]"] * 2
            leaves += [
                f"x[g[{index}] > N ? 1 : g[{index}]]",
                f"x[{index} > 1 ? {index} - 1 : 1]",
                f"a * {index}",
                f"m[{index}]",
                "sum(m)",
            ]
        else:
            leaves += ["mean(x)", "sum(a * x)", "spread(x, a)", "(N > 0 ? x[1] : 0)", "a / (1 + N)"]
        if depth == 0 or self.draw(st.integers(0, 2)) == 0:
            return self.one(*leaves)
        left, right = (self.number(depth - 1, local, index) for _ in range(2))
        return self.one(
            f"({left} + {right})",
            f"({left} * {right})",
            f"tanh({left})",
            f"bent({left}, {right})",
            f"({left} > {right} ? {right} : {left})",
        )

    def vector(self, depth: int) -> str:
        """An expression with an element for each observation."""
        leaves = ["x", "y", "(X * b)", "u[g]", "X[ : , 1]", "rep_vector(a, N)", "m"]
        if depth == 0 or self.draw(st.integers(0, 2)) == 0:
            return self.one(*leaves)
        left, right = (self.vector(depth - 1) for _ in range(2))
        alone = self.one("a", "2", "b[2]", "mean(x)", self.number(1, (), ""))
        return self.one(f"({left} + {right})", f"({left} .* {right})", f"tanh({left})", f"({alone} * {left})")

    def inside(self, depth: int, local: tuple[str, ...]) -> str:
        """Statements of a loop over observations n."""
        number = self.number(2, local, "n")
        kind = self.draw(st.integers(0, 6 if depth else 3))
        if kind == 0:
            return f"target += normal_lpdf(y[n] | {number}, 1);"
        if kind == 1:
            return f"m[n] = {number};"
        if kind == 2:
            return f"y[n] ~ normal({number}, 2);"
        if kind == 3:
            return f"{self.one('shared', *local)} {self.one('=', '+=')} {number};"
        more = self.inside(depth - 1, local)
        if kind == 4:
            name = f"k{next(self.numbers)}"
            return f"{{ real {name} = {number}; {self.inside(depth - 1, (*local, name))} {more} }}"
        if kind == 5:
            return f"if ({number} > 0.3) {{ {more} }} else {{ {self.inside(depth - 1, local)} }}"
        return f"for (j{next(self.numbers)} in 1 : J) {{ {more} }} {self.inside(depth - 1, local)}"

    def outside(self) -> str:
        """A statement of the model block."""
        kind = self.draw(st.integers(0, 5))
        if kind == 0:
            return f"y ~ normal({self.vector(2)}, 1);"
        if kind == 1:
            return f"target += {self.one('', '-')}sum({self.vector(2)}) - normal_lpdf(x | {self.vector(1)}, 2);"
        if kind == 2:
            return f"m = {self.vector(2)};"
        if kind == 3:
            return f"shared = {self.number(2, (), '')};"
        if kind == 4:
            return "x ~ normal(shared, 1);"
        return f"for (n in 1 : N) {{ {self.inside(2, ())} }}"


@st.composite
def models(draw: Any) -> str:
    sources = Sources(draw)
    statements = " ".join(sources.outside() for _ in range(draw(st.integers(1, 4))))
    return f"vector[N] m = rep_vector(0, N); real shared = 0; {statements}"


def rows(data: dict[str, Any], which: Any) -> dict[str, Any]:
    """The data of some observations."""
    own = {name: data[name][which] for name in ("y", "x", "g", "X")}
    return {**data, **own, "N": len(own["y"])}


def known(seed: int = 1, n: int = 5) -> tuple[dict[str, Any], dict[str, Any]]:
    """Data and parameters."""
    rng = np.random.default_rng(seed)
    data = {"N": n, "J": 3, "y": rng.normal(size=n), "x": rng.normal(size=n), "X": rng.normal(size=(n, 2))}
    data |= {"g": rng.integers(1, 4, n), "h": np.array([2, 3, 1]), "w": rng.normal(size=3)}
    return data, {"a": 0.7, "u": rng.normal(size=3), "b": rng.normal(size=2)}


def changes(program: Program) -> tuple[float, float]:
    """By how much the order and the cut of the observations change the log density."""
    data, parameters = known()

    def at(which: Any) -> float:
        with np.errstate(all="ignore"):
            try:
                return log_density(program, rows(data, which), parameters)
            except IndexError:  # a row that is not there
                return np.nan

    whole, nothing = at(slice(None)), at(slice(0))
    scale = 1 + sum(abs(at([n])) for n in range(5))
    parts = sum(at([n]) - nothing for n in range(5)) + nothing
    found = abs(at([3, 0, 4, 2, 1]) - whole) / scale, abs(parts - whole) / scale
    order, cut = (np.inf if np.isnan(one) else one for one in found)
    return order, cut


def test_what_is_said_to_be_of_single_rows_is_a_sum_over_them() -> None:
    """Among random programs are enough of both kinds, else this would say nothing."""
    kinds: dict[bool, int] = {True: 0, False: 0}
    broken = 0

    @settings(max_examples=250)
    @given(models())
    def held(model: str) -> None:
        nonlocal broken
        program = read(model)
        alone, change = all(one.reach.is_alone for one in terms(program, "N")), max(changes(program))
        assert not alone or change < 1e-9
        kinds[alone] += 1
        broken += change > 1e-6

    held()
    assert min(kinds.values()) > 30
    assert broken > 30


@settings(max_examples=60)
@given(models())
def test_random_programs_print_as_they_were_read(model: str) -> None:
    program = read(model)
    words = [token.text for token in tokenize(str(program))]
    again = parse(str(program))
    assert [token.text for token in tokenize(str(again))] == words
    assert printed(again.model.statements) == printed(program.model.statements)


@pytest.mark.parametrize(
    "model",
    [
        "for (n in 2 : N) y[n] ~ normal(y[n - 1], 1);",
        "for (n in 1 : N) y[n] ~ normal(a * n, 1);",
        "y ~ normal(a + x - mean(x), 1);",
        "real s = 0; for (n in 1 : N) s += a * x[n]; y ~ normal(s, 1);",
        "target += log_sum_exp(x * a);",
    ],
)
def test_the_evaluation_sees_what_ties_rows_together(model: str) -> None:
    program = read(model)
    assert not terms(program, "N")[-1].reach.is_alone
    assert max(changes(program)) > 1e-3


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(models())
def test_the_evaluation_is_that_of_stan(model_block: str) -> None:
    from stansub.stan.data.data import read as read_data
    from stansub.stan.toolchain import build

    data, parameters = known()
    code = stanc.canonical_code(read(model_block).code, "random")
    program = parse(code)
    library = Library(build.compile_library(code, name="random"))
    model = read_data(data, program.data.declarations).model(library)
    theta = np.concatenate([[parameters["a"]], parameters["u"], parameters["b"]])
    other = {"a": -0.3, "u": parameters["u"] + 1, "b": -parameters["b"]}
    theta_other = np.concatenate([[other["a"]], other["u"], other["b"]])
    expected = model.log_density(theta) - model.log_density(theta_other)
    found = log_density(program, data, parameters) - log_density(program, data, other)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)
