"""Programs written from a user's program, for stansub's own evaluations.

`block_program` is the user's program with the likelihood as a loop over blocks of observations that external functions
select (``cpp/stansub_blocks.hpp``). With no blocks set, it is the user's full posterior. Its generated quantities pass
each block's log likelihood to the header and have no variables of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from stansub.errors import InputError
from stansub.stan.recognise import Form, bracketed, normalised, partial_sums
from stansub.stan.syntax import (
    Braces,
    Call,
    Empty,
    Expression,
    For,
    Group,
    If,
    Jacobian,
    Name,
    Node,
    Perform,
    Prefix,
    Profile,
    Program,
    Span,
    Statement,
    Target,
    Tilde,
    UnsizedType,
    changed,
    names,
    parse,
    parse_expression,
    parse_statements,
    printed,
    substituted,
    writes,
)

_EXTERNAL = """\
  int stansub_n_blocks(int n);
  int stansub_start(int block);
  int stansub_end(int block, int n);
  void stansub_put(int block, real log_lik);"""


# The argument through which functions request the metric, and its name and size in a derived program.
_METRIC_ARGUMENT = "metric"
METRIC, METRIC_SIZE = "stansub_metric", "stansub_dim"


def block_program(program: Program, form: Form) -> str:
    """Return the user's program with its likelihood over blocks chosen from outside.

    Generated quantities of the user are left out. Compile the program with ``stanc --allow-undefined`` and
    ``cpp/stansub_blocks.hpp`` as user header.

    Parameters
    ----------
    form : Form
        The recognised likelihood, of kind "log_lik_i" or "reduce_sum".

    Returns
    -------
    str
        Stan code.

    Raises
    ------
    InputError
        If the program has names that begin with ``stansub_``.
    """
    reserve_names(program)
    if isinstance(form.likelihood, For):
        loop = form.likelihood
        functions, hoisted = _EXTERNAL, ""
        in_model = f"{{\n{_over_blocks(form.n, _units(loop, 'target'))}\n  }}"
        model = replaced(program, program.model.inside, [(form.span, in_model)])
        put = f"real stansub_value = 0;\n{_units(loop, 'stansub_value')}\nstansub_put(stansub_b, stansub_value);"
        in_quantities = f"{{\n{_over_blocks(form.n, put)}\n  }}"
    elif isinstance(form.likelihood, Call):
        call = form.likelihood
        arguments, hoisted = _hoisted(program, call)
        functions = "\n".join([_EXTERNAL, *_wrappers(program, call)])
        model = replaced(program, program.model.inside, [(call.span, f"stansub_sum({arguments})")])
        in_quantities = f"stansub_put_all({arguments});"
    else:
        raise ValueError("a program of form 'sum' is not rewritten")
    quantities, _ = _carried(program, program.model.statements, form.span, in_quantities)
    return program.with_blocks(
        functions_block=_lines(program.text(program.functions_block.inside), functions),
        transformed_data=_lines(program.text(program.transformed_data.inside), hoisted),
        model=_lines(model),
        # Braces make the variables local; generated quantities would otherwise be output.
        generated_quantities=_lines("{", quantities, "}"),
    )


def silent(code: str) -> str:
    """Return a program without its ``profile`` and ``print`` statements; profiled code stays, in plain braces.

    Evaluations of blocks run in several threads, for which Stan's table of profiles has no lock, and thousands of
    blocks would print each.
    """
    return silenced(parse(code)).code


def silenced(program: Program) -> Program:
    """Return a program without such statements: itself if it has none."""
    quiet = changed(program, _silenced)
    return program if quiet is program else parse(str(quiet))


def _silenced(node: Node) -> Node | None:
    if isinstance(node, Profile):
        return changed(Braces(node.body, span=node.span), _silenced)
    return Empty() if isinstance(node, Perform) and node.call.name == "print" else None


def reserved(program: Program) -> list[str]:
    """Return the names in a program that begin with the prefix reserved for stansub."""
    return sorted(name for name in program.symbols if name.startswith("stansub_"))


def reserve_names(program: Program) -> None:
    """Raise InputError if a program has names that begin with ``stansub_``."""
    if taken := reserved(program):
        raise InputError(
            f"the program uses the name {taken[0]!r}; names that begin with stansub_ are reserved: rename it"
        )


def _lines(*parts: str) -> str:
    return "\n".join(part.strip("\n") for part in parts if part.strip())


def replaced(program: Program, span: Span, replacements: Iterable[tuple[Span, str]]) -> str:
    """Return the text of a span with parts of it replaced."""
    pieces, at = [], span.start
    for part, text in sorted(replacements):
        pieces += [program.code[at : part.start], text]
        at = part.end
    return "".join([*pieces, program.code[at : span.end]])


def extended(program: Program, lines: Iterable[str], replacements: Collection[tuple[Span, str]]) -> str:
    """Return the program with more transformed data, and parts of its blocks replaced.

    Parameters
    ----------
    lines : iterable of str
        Stan code for the end of transformed data.
    replacements : collection of (Span, str)
        Parts of transformed data, parameters, transformed parameters and model, and their replacements.
    """
    inside = {
        name: replaced(program, block.inside, found)
        for name in ("transformed_data", "parameters", "transformed_parameters", "model")
        if (found := [one for one in replacements if (block := getattr(program, name)).span.contains(one[0])])
    }
    data = inside.pop("transformed_data", program.text(program.transformed_data.inside))
    return program.with_blocks(transformed_data="\n".join([data, *lines]), **inside)


def _units(loop: For, total: str) -> str:
    """Return the user's loop over ``log_lik_i``, restricted to a block."""
    assert isinstance(loop.body[0], Target)
    offset = "" if str(loop.lower) == "1" else f"{bracketed(loop.lower)} - 1 + "
    return f"""\
      for ({loop.variable} in {offset}stansub_first : {offset}stansub_last) {{
        {total} += {loop.body[0].expression};
      }}"""


def _over_blocks(n: str, body: str) -> str:
    """Return a loop over the blocks of ``n`` units; ``body`` may use stansub_b, stansub_first and stansub_last."""
    return f"""\
    int stansub_n = {n};
    for (stansub_b in 1 : stansub_n_blocks(stansub_n)) {{
      int stansub_first = stansub_start(stansub_b);
      int stansub_last = stansub_end(stansub_b, stansub_n);
      {body}
    }}"""


def _wrappers(program: Program, call: Call) -> list[str]:
    """Return functions with the signature of the partial sum, without start and end, that run over the blocks.

    As functions, they evaluate argument expressions once per call and not once per block, and need no types but those
    the user wrote. There is one pair for each overload.
    """
    wrappers = []
    for function in partial_sums(program, call):
        first, _, _, *rest = function.arguments
        passed = [f"stansub_a{k}" for k in range(len(rest))]
        declared = ", ".join(
            f"{'data ' if argument.data_only else ''}{argument.type} {name}"
            for argument, name in zip((first, *rest), ("stansub_x", *passed), strict=True)
        )
        bar = " |" if function.name.endswith(("_lpdf", "_lpmf")) else ","
        value = (
            f"{function.name}(stansub_x[stansub_first : stansub_last]{bar} "
            f"{', '.join(['stansub_first', 'stansub_last', *passed])})"
        )
        wrappers.append(f"""\
  real stansub_sum({declared}) {{
    real stansub_value = 0;
{_over_blocks("size(stansub_x)", f"stansub_value += {value};")}
    return stansub_value;
  }}
  void stansub_put_all({declared}) {{
{_over_blocks("size(stansub_x)", f"stansub_put(stansub_b, {value});")}
  }}""")
    return wrappers


def _hoisted(program: Program, call: Call) -> tuple[str, str]:
    """Return arguments for the wrappers, and transformed data that hold those that are expressions of data alone.

    An expression such as ``y[training]`` would otherwise cost time in proportion to all observations at every
    evaluation, however few blocks are evaluated.
    """
    changing = program.changing_names
    arguments, lines = [], []
    functions = partial_sums(program, call)
    for k, argument in enumerate(call.arguments):
        if k in (0, 2):  # the function and the grain size
            continue
        place = 0 if k == 1 else k
        types = {function.arguments[place].type for function in functions}
        used = names(argument)
        name = "" if isinstance(argument, Name) or not used or used & changing else f"stansub_data_{k}"
        declaration = _sized_like(argument, types.pop(), name) if name and len(types) == 1 else ""
        if declaration:
            lines.append(f"  {declaration}")
        arguments.append(name if declaration else str(argument))
    return ", ".join(arguments), "\n".join(lines)


def _sized_like(expression: Expression, unsized: UnsizedType, name: str) -> str:
    """Return a declaration of a variable of unsized type with an expression's value and sizes; empty for tuples."""
    if unsized.base == "tuple":
        return ""
    base, depth = unsized.base, unsized.depth

    # dims() returns (n, 1) for a vector and (1, n) for a row vector, and an empty array cuts it short.
    def size(k: int) -> str:
        if k == 1:
            return f"size({expression})"
        return f"size(dims({expression})) >= {k} ? dims({expression})[{k}] : 0"

    inner = {"row_vector": [2 if depth else 1], "vector": [1], "matrix": [1, 2]}.get(base.removeprefix("complex_"), [])
    if base.endswith("matrix") and not depth:
        sizes = f"[rows({expression}), cols({expression})]"
    else:
        sizes = f"[{', '.join(size(depth + k) for k in inner)}]" if inner else ""
    array = f"array[{', '.join(size(k + 1) for k in range(depth))}] " if depth else ""
    return f"{array}{base}{sizes} {name} = {expression};"


def _carried(program: Program, statements: Sequence[Statement], span: Span, text: str) -> tuple[str, set[str]]:
    """Return what replaces the likelihood statement, within its branches and after the locals that it needs.

    Returns
    -------
    str
        Stan code in which nothing adds to the target.
    set of str
        Variables that it reads.
    """
    at = next(k for k, other in enumerate(statements) if other.span.contains(span))
    holder = statements[at]
    if holder.span == span:
        code, needed = text, names(*parse_statements(text))
    else:
        inner = next(inner for inner in holder.bodies if any(other.span.contains(span) for other in inner))
        code, needed = _carried(program, inner, span, text)
        code = f"{{\n{code}\n}}"
        if isinstance(holder, If):
            condition = holder.condition if inner is holder.then else Prefix("!", Group("(", (holder.condition,)))
            code = f"if ({condition}) {code}"
            needed = needed | names(condition)
    lines, carried = [code], set()
    for statement in reversed(statements[:at]):
        if writes(statement) & needed and statement.span not in carried:
            carried.add(statement.span)  # several variables may share a declaration
            together = [one for one in statements if one.span == statement.span]
            lines.insert(0, printed([changed(one, _without_effects) for one in together]))
            needed = needed | names(*together)
    return "\n".join(lines), needed


def _without_effects(node: Node) -> Node | None:
    """Return the replacement of a node where nothing may print or add to the target, and densities may be called."""
    if isinstance(node, Target | Tilde | Jacobian) or (isinstance(node, Perform) and _is_effect(node.call.name)):
        return Braces(())
    if isinstance(node, Call) and node.name != normalised(node.name):
        return changed(replace(node, name=normalised(node.name)), _without_effects)
    return None


def _is_effect(name: str) -> bool:
    return name == "print" or name.endswith("_lp")


def constants_program(program: Program, function: str, n: str, *, first: str = "1") -> str:
    """Return a program without parameters whose only generated quantity is ``vector[n] stansub_constants``.

    Its elements are the user's ``function(i, ...)`` for ``n`` values of i from ``first`` on. The other arguments are
    the data of the same names. An argument ``metric`` that is not a variable is data of the derived program.

    Parameters
    ----------
    function : str
        ``log_lik_lipschitz_i`` or another function that returns a constant for each observation.
    n : str
        The number of observations as a Stan expression of data.
    first : str
        Start of the user's loop over observations.

    Raises
    ------
    InputError
        If the program has no such function, or an argument is not the name of a data variable.
    """
    known, metric = program.data_names, takes_metric(program, function)
    arguments = _by_name(
        program, function, 1, known | ({_METRIC_ARGUMENT} if metric else set()), "data or transformed data"
    )
    if metric:
        arguments = [METRIC if name == _METRIC_ARGUMENT else name for name in arguments]
    declared = f"int {METRIC_SIZE};\n  matrix[{METRIC_SIZE}, {METRIC_SIZE}] {METRIC};" if metric else ""
    index = "stansub_i" if first == "1" else f"{bracketed(parse_expression(first))} - 1 + stansub_i"
    call = f"{function}({', '.join([index, *arguments])})"
    loop = f"  for (stansub_i in 1 : {n}) {{\n    stansub_constants[stansub_i] = {call};\n  }}"
    return program.with_blocks(
        data=_lines(program.text(program.data.inside), declared),
        parameters=None,
        transformed_parameters=None,
        model=None,
        generated_quantities=f"  vector[{n}] stansub_constants;\n{loop}",
    )


def takes_metric(program: Program, function: str) -> bool:
    """Return whether a function of the program has an argument ``metric`` that is not a data variable."""
    arguments = {argument.name for one in program.functions if one.name == function for argument in one.arguments}
    return _METRIC_ARGUMENT in arguments - program.data_names


def range_program(program: Program) -> str:
    """Return a program with the parameters twice whose only generated quantity is ``real stansub_range``.

    It is the user's ``log_lik_range(...)``, whose arguments are names of data and parameters. A parameter name with
    suffix ``_new`` refers to the proposal. The unconstrained parameters are those of the program at the current state,
    then at the proposal.

    Raises
    ------
    InputError
        If the program has no such function, or an argument is neither data nor a parameter.
    """
    parameters = {variable.name for variable in program.parameters.declarations}
    at_proposal = {name: Name(f"{name}_new") for name in parameters}
    new, known = {one.name for one in at_proposal.values()}, program.data_names | parameters
    if taken := known & new:
        raise InputError(
            f"log_lik_range: the variable {min(taken)!r} has the name of a parameter at the proposal; rename it"
        )
    arguments = _by_name(program, "log_lik_range", 0, known | new, "data or parameters")
    proposed = printed([substituted(one, at_proposal) for one in program.parameters.statements])
    return program.with_blocks(
        parameters=_lines(program.text(program.parameters.inside), proposed),
        transformed_parameters=None,
        model=None,
        generated_quantities=f"  real stansub_range = log_lik_range({', '.join(arguments)});",
    )


def _by_name(program: Program, function: str, skip: int, known: set[str], what: str) -> list[str]:
    """Return arguments of a user's function after the first ``skip``, which must be names of known variables."""
    candidates = [candidate for candidate in program.functions if candidate.name == function]
    if not candidates:
        raise InputError(f"the program has no function {function}")
    for candidate in candidates:
        found = [argument.name for argument in candidate.arguments[skip:]]
        unknown = [name for name in found if name not in known]
        if not unknown:
            return found
    raise InputError(f"{function}: its argument {unknown[0]!r} is not the name of a variable in {what} of the program")
