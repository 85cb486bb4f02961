"""Products of sparse designs and vectors, row by row.

``csr_matrix_times_vector(N, q, w, v, u, b)`` reads the entries of a row from where u says that they start, so the data
cannot be cut. In the program written here, ``transformed data`` hold the entries and their columns by row, padded with
zeros to the same number. The product is computed in a loop over rows.
"""

from __future__ import annotations

from stansub.stan.passes.rewriting import Edits, Pass, Symbols
from stansub.stan.reading.sizes import counting
from stansub.stan.syntax import Call, Expression, Name, Program, Span, find, unlooped


@Pass.named("products of sparse designs row by row")
def with_dense_rows(program: Program) -> Edits:
    """Write products of sparse designs that are data, with a row for each observation, in loops over rows."""
    data, counts, symbols = program.data_names, counting(program), Symbols.of(program)
    designs, replacements = dict[tuple[Expression, ...], _Design](), dict[Span, str]()
    for statement, _ in unlooped(program.evaluated):
        before = statement.span.before
        for call in find(Call, statement.own):
            match call:
                case Call("csr_matrix_times_vector", (Name() as n, q, Name() as w, Name() as v, Name() as u, factor)):
                    if not counts(n) or not {n.name, w.name, v.name, u.name} <= data:
                        continue
                    if (n, w, v, u) not in designs:
                        designs[n, w, v, u] = _Design(n, w, v, u, symbols)
                    product = symbols.fresh("stansub_product")
                    loop = designs[n, w, v, u].times(product, q, factor)
                    replacements[before] = replacements.get(before, "") + loop
                    replacements[call.span] = product
    lines = [one.declared for one in designs.values()]
    return Edits(lines, list(replacements.items()))


class _Design:
    """A sparse design, in the notation of Stan's function, and names for what is declared for it."""

    def __init__(self, n: Name, w: Name, v: Name, u: Name, symbols: Symbols) -> None:
        self.n, self.symbols = n, symbols
        self.entries, self.columns = symbols.fresh("stansub_entries"), symbols.fresh("stansub_columns")
        width, i, j = (symbols.fresh(f"stansub_{stem}") for stem in ("width", "row", "entry"))
        self.row = i
        self.declared = f"""\
  int {width} = 0;
  for ({i} in 1 : {n}) {{ {width} = max({width}, {u}[{i} + 1] - {u}[{i}]); }}
  matrix[{n}, {width}] {self.entries} = rep_matrix(0, {n}, {width});
  array[{n}, {width}] int {self.columns} = rep_array(1, {n}, {width});
  for ({i} in 1 : {n}) {{
    for ({j} in 1 : {u}[{i} + 1] - {u}[{i}]) {{
      {self.entries}[{i}, {j}] = {w}[{u}[{i}] + {j} - 1];
      {self.columns}[{i}, {j}] = {v}[{u}[{i}] + {j} - 1];
    }}
  }}"""

    def times(self, product: str, q: Expression, factor: Expression) -> str:
        """Return the code that declares the product with a vector of size ``q`` and computes it."""
        name = str(factor) if isinstance(factor, Name) else self.symbols.fresh("stansub_factor")
        declared = "" if isinstance(factor, Name) else f"vector[{q}] {name} = {factor};\n"
        term = f"dot_product({self.entries}[{self.row}], {name}[{self.columns}[{self.row}]])"
        loop = f"for ({self.row} in 1 : {self.n}) {{ {product}[{self.row}] = {term}; }}"
        return f"{declared}vector[{self.n}] {product};\n{loop}\n"
