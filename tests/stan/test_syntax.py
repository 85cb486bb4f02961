"""The parser, on stanc's canonical text of programs as people write them."""

from itertools import pairwise
from pathlib import Path

import pytest

from stansub.errors import InputError
from stansub.stan import stanc
from stansub.stan.syntax import (
    Assign,
    Block,
    Braces,
    Declaration,
    For,
    ForEach,
    If,
    Other,
    Profile,
    Program,
    Statement,
    Target,
    Tilde,
    While,
    calls,
    children,
    names,
    parse,
    tokenize,
    walk,
)

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted([*(ROOT / "stan_models").glob("*.stan"), *(Path(__file__).parent / "programs").glob("*.stan")])

EVERYTHING = r"""
functions {
  tuple(real, int) pair(tuple(int, array[,] vector) q) { return (1.0, 2); }
  array[,] real first(array[,,] real x) { print("not a { brace", 1, x); return x[1]; }
  real later(array[] int y, data real s) { return sum(y) * s; }
  void add_lp(real a) { target += a; a ~ normal(0, 1); }
}
data {
  int<lower=0> N, K; /* two at once */
  array[N, 3] vector<lower=0>[K] q;
  vector<offset=1, multiplier=(K > 2)>[N] z;
  tuple(int, array[N] real) t;
  array[2] tuple(real, vector[N]) ts;
  cholesky_factor_cov[3, 2] L; // a comment with ; and }
  array[N + 1] int y;
  complex_matrix[2, K] C;
}
transformed data {
  int M = N > 3 ? 2 : 1;
  real w, ww = 2.5e-3;
  if (N > 2) M = 3; else if (N == 1) M = 4; else { M = 5; }
  (M, w) = (1, 2);
  profile("set-up") { M += 2; }
  array[2] int a = {1, 2};
  w *= t.1;
}
parameters { real<lower=0> sigma; real<lower=sigma> above; simplex[3] p; }
model {
  target += normal_lupdf(sigma | 0, 1) - 1 * normal_lccdf(0 | 0, 1);
  sigma ~ normal(0, 1) T[0, ];
  while (1) { break; }
  for (v in z) target += v;
  for (i in 1:size(y)) for (j in 2:i) { y[i] ~ poisson(j); }
  add_lp(-(1 - -2) ^ 2 ./ 3);
  { row_vector[2] u = z[1 : 2]'; }
  if (sigma < 1) reject("a");
}
"""


def parsed(code: str, folder: Path) -> Program:
    file = folder / "program.stan"
    file.write_text(code)
    return parse(stanc.canonical(file))


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return parsed(EVERYTHING, tmp_path_factory.mktemp("everything"))


def variables(block: Block) -> dict[str, Declaration]:
    return {declaration.name: declaration for declaration in block.declarations}


def test_declarations(everything: Program) -> None:
    data = variables(everything.data)
    assert list(data) == ["N", "K", "q", "z", "t", "ts", "L", "y", "C"]
    assert (data["K"].base, data["K"].constraint, data["K"].all_dims) == ("int", "lower=0", ())
    assert (data["q"].array_dims, data["q"].dims, data["q"].all_dims) == (("N", "3"), ("K",), ("N", "3", "K"))
    assert (data["q"].base, data["q"].constraint) == ("vector", "lower=0")
    assert (data["z"].constraint, data["z"].dims) == ("offset=1, multiplier=(K > 2)", ("N",))
    assert (data["t"].base, data["t"].elements, data["t"].all_dims) == ("tuple", ("int", "array[N] real"), ())
    assert (data["ts"].array_dims, data["ts"].elements) == (("2",), ("real", "vector[N]"))
    assert (data["L"].base, data["L"].dims) == ("cholesky_factor_cov", ("3", "2"))
    assert data["y"].array_dims == ("N + 1",)
    assert data["N"].span == data["K"].span
    values = variables(everything.transformed_data)
    assert (values["M"].value, values["w"].value, values["ww"].value) == ("N > 3 ? 2 : 1", None, "2.5e-3")
    assert values["a"].value == "{1, 2}"
    assert variables(everything.parameters)["above"].constraint == "lower=sigma"


def test_functions(everything: Program) -> None:
    assert [(function.name, function.return_type) for function in everything.functions] == [
        ("pair", "tuple(real, int)"),
        ("first", "array[,] real"),
        ("later", "real"),
        ("add_lp", "void"),
    ]
    pair, first, later, _ = everything.functions
    arguments = [(argument.name, argument.type, argument.data_only) for argument in later.arguments]
    assert arguments == [("y", "array[] int", False), ("s", "real", True)]
    assert later.body is not None
    assert parse("functions { real f(int n); }").functions[0].body is None
    assert [(a.name, a.type) for a in pair.arguments] == [("q", "tuple(int, array[,] vector)")]
    assert [(a.name, a.type) for a in first.arguments] == [("x", "array[,,] real")]


def test_statements(everything: Program) -> None:
    first, tilde, loop, each, nested, call, braces, branch = everything.model.statements
    assert isinstance(first, Target)
    assert first.expression == "normal_lupdf(sigma | 0, 1) - 1 * normal_lccdf(0 | 0, 1)"
    assert isinstance(tilde, Tilde)
    assert (tilde.left, tilde.distribution) == ("sigma", "normal(0, 1) T[0, ]")
    assert isinstance(loop, While)
    assert isinstance(loop.body[0], Other)
    assert isinstance(each, ForEach)
    assert (each.variable, each.container, len(each.body)) == ("v", "z", 1)
    assert isinstance(nested, For)
    assert (nested.variable, nested.lower, nested.upper) == ("i", "1", "size(y)")
    inner = nested.body[0]
    assert isinstance(inner, For)
    assert (inner.upper, type(inner.body[0])) == ("i", Tilde)
    assert isinstance(call, Other)
    assert isinstance(braces, Braces)
    assert isinstance(braces.body[0], Declaration)
    assert isinstance(branch, If)
    assert (branch.condition, branch.orelse) == ("sigma < 1", ())

    _, _, _, chain, several, profile, _, scaled = everything.transformed_data.statements
    assert isinstance(chain, If)
    assert isinstance(chain.orelse[0], If)
    assert isinstance(chain.orelse[0].orelse[0], Assign)
    assert isinstance(several, Assign)
    assert several.variables == ("M", "w")
    assert isinstance(profile, Profile)
    assert isinstance(profile.body[0], Assign)
    assert (profile.name, profile.body[0].operator) == ('"set-up"', "+=")
    assert isinstance(scaled, Assign)
    assert (scaled.variables, scaled.operator, scaled.expression) == (("w",), "*=", "t.1")


def covers(program: Program, statements: tuple[Statement, ...], start: int, end: int) -> None:
    """Statements follow each other with nothing but white space in between."""
    spans = sorted({statement.span for statement in statements})
    edges = [start, *(edge for span in spans for edge in span), end]
    assert all(before <= after for before, after in pairwise(edges))
    assert not "".join(program.code[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)).strip()


@pytest.mark.parametrize("file", PROGRAMS, ids=lambda file: file.stem)
def test_every_part_of_a_program_is_in_a_statement(file: Path) -> None:
    program = parse(stanc.canonical(file))
    blocks = [
        program.data,
        program.transformed_data,
        program.parameters,
        program.transformed_parameters,
        program.model,
        program.generated_quantities,
    ]
    for block in blocks:
        covers(program, block.statements, *block.inside)
        for statement in walk(block.statements):
            for inner in children(statement):
                assert all(
                    statement.span.start < other.span.start and other.span.end <= statement.span.end for other in inner
                )
    spans = [block.span for block in [*blocks, program.functions_block]]
    assert len(program.code.split()) == sum(len(program.text(span).split()) for span in spans)


def test_calls_are_split_at_commas_and_bars() -> None:
    text = "a + f(x | b, g(c)[1], {1, 2}) * h()"
    assert [(call.name, call.arguments) for call in calls(text)] == [
        ("f", ("x", "b", "g(c)[1]", "{1, 2}")),
        ("g", ("c",)),
        ("h", ()),
    ]
    call = calls(text)[0]
    assert text[call.span.start : call.span.end] == "f(x | b, g(c)[1], {1, 2})"
    assert calls("if (a) for (b in c) print(d)") == []


def test_names_are_variables_only() -> None:
    assert names("a[i] .* f(b)' + 1.5e3 .* t.1 ? x1 : real_y") == {"a", "i", "b", "t", "x1", "real_y"}
    assert names("for (n in 1 : N) { target += y[n]; }") == {"n", "N", "y"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1.*x", ["1", ".*", "x"]),
        ("1. .* x", ["1.", ".*", "x"]),
        ("x.1.2", ["x", ".1", ".2"]),
        ("3i+1_000.5e-3", ["3i", "+", "1_000.5e-3"]),
        ("a%/%b./=c", ["a", "%/%", "b", "./=", "c"]),
        ('"a // b" // "c"\n/* d */ e', ['"a // b"', "e"]),
        ("#include part.stan\nx", ["x"]),
    ],
)
def test_tokens(text: str, words: list[str]) -> None:
    assert [token.text for token in tokenize(text)] == words


@pytest.mark.parametrize("code", ["model { x", "model { f(1; }", "nonsense { }", "data { int N }", "model { x = 1 }"])
def test_broken_programs_are_input_errors(code: str) -> None:
    with pytest.raises(InputError, match="Stan program"):
        parse(code)
