"""The parser, on stanc's canonical text of programs as people write them."""

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from decorated import typed_expressions
from hypothesis import given
from hypothesis import strategies as st
from typed import typed

from stansub.errors import InputError
from stansub.stan.syntax import (
    Assign,
    Block,
    Braces,
    Choice,
    Declaration,
    Expression,
    For,
    ForEach,
    Group,
    If,
    Infix,
    Jump,
    Name,
    Perform,
    Prefix,
    Profile,
    Program,
    Slice,
    Span,
    Statement,
    Subscript,
    Target,
    Tilde,
    Transpose,
    While,
    calls,
    changed,
    find,
    names,
    parse,
    parse_expression,
    tokenize,
    walk,
)
from stansub.stan.toolchain import stanc

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
  if (N > 2) { M = 3; } else if (N == 1) { M = 4; } else { M = 5; }
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
  for (v in z) { target += v; }
  for (i in 1:size(y)) for (j in 2:i) { y[i] ~ poisson(j); }
  add_lp(-(1 - -2) ^ 2 ./ 3);
  { row_vector[2] u = z[1 : 2]'; }
  {sigma, above} ~ normal(0, 1);
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


def texts(items: Iterable[object]) -> tuple[str, ...]:
    return tuple(map(str, items))


def words(text: str) -> list[str]:
    return [token.text for token in tokenize(text)]


def variables(block: Block) -> dict[str, Declaration]:
    return {declaration.name: declaration for declaration in block.declarations}


def test_declarations(everything: Program) -> None:
    data = variables(everything.data)
    assert list(data) == ["N", "K", "q", "z", "t", "ts", "L", "y", "C"]
    assert (data["K"].base, texts(data["K"].type.bounds), data["K"].all_dims) == ("int", ("lower=0",), ())
    assert (texts(data["q"].array_dims), texts(data["q"].dims)) == (("N", "3"), ("K",))
    assert data["q"].sizes == ("N", "3", "K")
    assert (data["q"].base, texts(data["q"].type.bounds)) == ("vector", ("lower=0",))
    assert (texts(data["z"].type.bounds), data["z"].sizes) == (("offset=1", "multiplier=(K > 2)"), ("N",))
    assert (data["t"].base, texts(data["t"].type.elements)) == ("tuple", ("int", "array[N] real"))
    assert [str(member) for member in data["t"].members] == ["int t.1;", "array[N] real t.2;"]
    assert data["t"].all_dims == ()
    assert (texts(data["ts"].array_dims), texts(data["ts"].type.elements)) == (("2",), ("real", "vector[N]"))
    assert (data["L"].base, texts(data["L"].dims)) == ("cholesky_factor_cov", ("3", "2"))
    assert texts(data["y"].array_dims) == ("N + 1",)
    assert data["N"].span == data["K"].span
    values = variables(everything.transformed_data)
    assert texts(values[name].value for name in ("M", "w", "ww")) == ("N > 3 ? 2 : 1", "None", "2.5e-3")
    assert str(values["a"].value) == "{1, 2}"
    assert texts(variables(everything.parameters)["above"].type.bounds) == ("lower=sigma",)


def test_functions(everything: Program) -> None:
    assert [(function.name, str(function.return_type)) for function in everything.functions] == [
        ("pair", "tuple(real, int)"),
        ("first", "array[,] real"),
        ("later", "real"),
        ("add_lp", "void"),
    ]
    pair, first, later, _ = everything.functions
    assert texts(later.arguments) == ("array[] int y", "data real s")
    assert later.body is not None
    assert parse("functions { real f(int n); }").functions[0].body is None
    assert texts(pair.arguments) == ("tuple(int, array[,] vector) q",)
    assert texts(first.arguments) == ("array[,,] real x",)


def test_statements(everything: Program) -> None:
    first, tilde, loop, each, nested, call, braces, both, branch = everything.model.statements
    assert isinstance(first, Target)
    assert str(first.expression) == "normal_lupdf(sigma | 0, 1) - 1 * normal_lccdf(0 | 0, 1)"
    assert isinstance(tilde, Tilde)
    assert (tilde.left, str(tilde.distribution), tilde.right) == (
        Name("sigma"),
        "normal(0, 1)",
        "normal(0, 1) T[0, ]",
    )
    assert isinstance(loop, While)
    assert isinstance(loop.body[0], Jump)
    assert isinstance(each, ForEach)
    assert (each.variable, each.container, len(each.body)) == ("v", Name("z"), 1)
    assert isinstance(nested, For)
    assert (nested.variable, str(nested.lower), str(nested.upper)) == ("i", "1", "size(y)")
    inner = nested.body[0]
    assert isinstance(inner, For)
    assert (inner.upper, type(inner.body[0])) == (Name("i"), Tilde)
    assert isinstance(call, Perform)
    assert call.call.name == "add_lp"
    assert isinstance(braces, Braces)
    assert isinstance(braces.body[0], Declaration)
    assert isinstance(both, Tilde)
    assert texts((both.left, both.distribution)) == ("{sigma, above}", "normal(0, 1)")
    assert isinstance(branch, If)
    assert (str(branch.condition), branch.orelse) == ("sigma < 1", ())

    _, _, _, chain, several, profile, _, scaled = everything.transformed_data.statements
    assert isinstance(chain, If)
    assert isinstance(chain.orelse[0], If)
    assert isinstance(chain.orelse[0].orelse[0], Assign)
    assert isinstance(several, Assign)
    assert several.variables == ("M", "w")
    assert isinstance(profile, Profile)
    assert isinstance(profile.body[0], Assign)
    assert (str(profile.name), profile.body[0].operator) == ('"set-up"', "+=")
    assert isinstance(scaled, Assign)
    assert (scaled.variables, scaled.operator, str(scaled.expression)) == (("w",), "*=", "t.1")


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
            for inner in statement.bodies:
                assert all(
                    statement.span.start < other.span.start and other.span.end <= statement.span.end for other in inner
                )
    spans = [block.span for block in [*blocks, program.functions_block]]
    assert len(program.code.split()) == sum(len(program.text(span).split()) for span in spans)


EXAMPLES = sorted(
    {
        *PROGRAMS,
        *(ROOT / "examples").rglob("*.stan"),
        *(ROOT / "tests").rglob("*.stan"),
    }
)
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.stan"))
MOST = [pytest.param(file, marks=[pytest.mark.slow] if n % 3 else []) for n, file in enumerate(BENCHMARKS)]


@pytest.fixture(scope="module", params=[*EXAMPLES, *MOST], ids=lambda file: file.stem)
def code(request: pytest.FixtureRequest) -> str:
    """The text of an example."""
    return stanc.canonical(request.param)


def test_a_program_is_printed_as_it_was_read(code: str) -> None:
    program = parse(code)
    assert without_parentheses(str(program)) == without_parentheses(_one_by_one(program))
    assert _contents(parse(stanc.canonical_code(str(program), "printed"))) == _contents(program)


def test_every_kind_of_statement_is_printed_as_it_was_read(everything: Program) -> None:
    assert words(str(everything)) == words(_one_by_one(everything))


def without_parentheses(text: str) -> list[str]:
    return [word for word in words(text) if word not in ("(", ")")]


def _one_by_one(program: Program) -> str:
    """The program's text with a statement for each variable, ``real a; real b;`` instead of ``real a, b;``."""
    groups: dict[Span, list[str]] = {}
    for one in find(Declaration, [program]):
        groups.setdefault(one.span, []).append(str(one))
    text = program.code
    for span, declared in sorted(groups.items(), reverse=True):
        if len(declared) > 1:
            text = text[: span.start] + " ".join(declared) + text[span.end :]
    return text


def _contents(program: Program) -> list[tuple[Any, ...]]:
    """All statements without their places: expressions as trees."""
    return [one.own for one in walk([*program.model.statements, *program.parameters.statements, *_blocks(program)])]


def test_parentheses_are_printed_where_precedence_requires_them() -> None:
    text = "((a) + (b * c)) * (d - (e - f)) ^ (-g) - (-h)[(i)]"
    assert str(parse_expression(text)) == "(a + b * c) * (d - (e - f)) ^ -g - (-h)[i]"
    assert parse_expression("(a * b) * c") == parse_expression("a * b * c") != parse_expression("a * (b * c)")
    assert str(parse_expression("x[(a > b ? 1 : 2) : (n - 1)]")) == "x[(a > b ? 1 : 2) : n - 1]"
    bounded = parse("parameters { real<lower=(a > b), upper=(a + b)> x; }")
    assert str(bounded.parameters.statements[0]) == "real<lower=(a > b), upper=a + b> x;"


def test_bodies_are_printed_in_braces() -> None:
    bare = "model { if (a) b = 1; else if (c) { d(); } else for (i in x) ; while (e) { continue; } }"
    braced = "model { if (a) { b = 1; } else if (c) { d(); } else { for (i in x) { ; } } while (e) { continue; } }"
    assert words(str(parse(bare))) == words(str(parse(braced))) == words(braced)


def test_types_are_those_of_stanc(code: str, tmp_path: Path) -> None:
    canonical = tmp_path / "canonical.stan"
    canonical.write_text(code)
    program = parse(code)
    theirs = {("".join(without_parentheses(text)), kind) for text, kind in typed_expressions(canonical)}
    ours = {("".join(without_parentheses(str(one))), str(kind)) for one, kind in typed(program)}
    assert theirs <= ours
    # stanc gives no type to what is assigned to, and has no strings among its expressions.
    places = {
        "".join(without_parentheses(str(part)))
        for one in walk([*program.model.statements, *_blocks(program)])
        if isinstance(one, Assign)
        for part in one.place.inner()
    }
    assert {text for text, _ in ours - theirs if not text.startswith('"')} <= places


def _blocks(program: Program) -> list[Statement]:
    functions = [one for function in program.functions for one in function.body or ()]
    blocks = (program.transformed_data, program.transformed_parameters, program.generated_quantities)
    return [*functions, *(one for block in blocks for one in block.statements)]


def test_a_wrong_type_is_noticed(tmp_path: Path) -> None:
    code = "data { int N; } parameters { vector[N] b; } model { target += sum(b * 2); }"
    file = tmp_path / "program.stan"
    file.write_text(code)
    theirs = dict(typed_expressions(file))
    assert theirs["b * 2"] == "vector"
    assert ("b * 2", "row_vector") not in theirs.items()


def test_a_change_leaves_the_rest_as_it_is() -> None:
    program = parse("model { target += f(a[i], b); b = 2; }")
    after = changed(program, lambda node: Name("c") if node == Name("b") else None)
    assert str(after.model.statements[0]) == "target += f(a[i], c);"
    assert str(after.model.statements[1]) == "c = 2;"
    assert changed(program, lambda node: None) is program


expressions = st.recursive(
    st.sampled_from("abxyn").map(Name),
    lambda inner: st.one_of(
        st.tuples(
            st.sampled_from(("+", "-", "*", "/", ".*", "^", "<", "==", "&&", "||", "\\", "%/%")), inner, inner
        ).map(lambda one: Infix(*one)),
        st.tuples(st.sampled_from("-!"), inner).map(lambda one: Prefix(*one)),
        inner.map(Transpose),
        st.tuples(inner, inner, inner).map(lambda one: Choice(*one)),
        st.tuples(inner, inner).map(lambda one: Subscript(one[0], (one[1], Slice(one[1], None), Slice()))),
        st.lists(inner, min_size=2, max_size=3).map(lambda items: Group("{", tuple(items))),
    ),
    max_leaves=8,
)


def bare_tree(expression: Expression) -> Expression:
    """An expression without parentheses."""

    def unwrapped(node: object) -> Expression | None:
        if isinstance(node, Group) and node.opening == "(":
            return bare_tree(node.items[0])
        return None

    return changed(expression, unwrapped)


@given(expressions)
def test_trees_made_by_hand_are_printed_with_the_parentheses_that_they_need(tree: Expression) -> None:
    assert bare_tree(parse_expression(str(tree))) == tree


def test_calls_are_found_the_outer_first() -> None:
    found = calls(parse_expression("a + f(x | b, g(c)[1], {1, 2}) * h()"))
    assert [(call.name, texts(call.arguments)) for call in found] == [
        ("f", ("x", "b", "g(c)[1]", "{1, 2}")),
        ("g", ("c",)),
        ("h", ()),
    ]
    assert found[0].span == (4, 29)


def test_names_are_variables_only() -> None:
    expression = parse_expression("a[i] .* f(b)' + 1.5e3 .* t.1 ? x1 : real_y")
    assert names(expression) == {"a", "i", "b", "t", "x1", "real_y"}
    assert names(parse("model { for (n in 1 : N) { target += y[n]; } }")) == {"n", "N", "y"}


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


@pytest.mark.parametrize("text", ["model { x", "model { f(1; }", "nonsense { }", "data { int N }", "model { x = 1 }"])
def test_broken_programs_are_input_errors(text: str) -> None:
    with pytest.raises(InputError, match="Stan program"):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "a + b * c ^ -2",
        "x[n, :]' * beta",
        "normal_lpdf(y | a + b, s)",
        "y[2 : N] - y[: N - 1]",
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
