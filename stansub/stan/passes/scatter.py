"""Rewriting of assignments to a list of observations, such as missing values that are parameters, by observation.

``x[gone] = guess;`` reads a list of places in all of the data, so the data cannot be cut. In the program written here,
``transformed data`` hold the inverse of the list, which gives each observation's place in the list and is cut with the
other data. The assignment becomes a loop over observations. The log density is that of the user's program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from stansub.stan.passes.rewriting import Edits, Pass, Symbols
from stansub.stan.reading.sizes import counting
from stansub.stan.syntax import (
    Assign,
    Call,
    Declaration,
    Expression,
    For,
    Literal,
    Name,
    Node,
    Program,
    SizedType,
    Slice,
    Statement,
    Subscript,
    changed,
    flat,
    names,
    unlooped,
)

# Loop variables of slices written as loops over lists, and of loops over observations.
_ENTRY, _ROW = Name("stansub_entry"), "stansub_row"
# Name of the values assigned to such slices, if they have none.
_VALUES = Name("stansub_values")
# Variables of one dimension whose values may be computed before the assignment.
_VECTORS = frozenset({"vector", "row_vector"})


@Pass.named("values at listed indices observation by observation")
def observation_by_observation(program: Program) -> Edits:
    """Assign values by observation to variables that the program assigns by lists of places."""
    writer = _Writer(program)
    found = [(one.span, text) for one, _ in unlooped(program.evaluated) if (text := writer.written(one))]
    return Edits(writer.lines, found)


@dataclass(frozen=True)
class _Filling:
    """``for (entry in lower : upper) variable[indices] = value;`` with places of ``variable`` that data list."""

    variable: Declaration
    indices: tuple[Expression, ...]
    lists: dict[int, Expression]
    """Which of the indices are ``list[entry]``, with their lists."""
    operator: str
    value: Expression
    entry: Name
    lower: Expression
    upper: Expression
    first: Declaration | None = None

    @property
    def reads(self) -> set[str]:
        """Return variables from which the values are computed."""
        computed = self.value if self.first is None else self.first
        return names(computed) - {self.entry.name, _VALUES.name}

    def inverse(self, name: str) -> list[str]:
        """Return the code that declares and fills the inverse of the lists."""
        dims = ", ".join(self.variable.sizes[axis] for axis in self.lists)
        places = ", ".join(str(self.indices[axis]) for axis in self.lists)
        return [
            f"array[{dims}] int {name} = rep_array(0, {dims});",
            f"for ({self.entry} in {self.lower} : {self.upper}) {{ {name}[{places}] = {self.entry}; }}",
        ]

    def loop(self, name: str, variable: str) -> str:
        """Return the loop over observations by an inverse, which assigns to a variable."""
        rows = {axis: Name(f"{_ROW}_{axis}") for axis in self.lists}
        entry = Subscript(Name(name), tuple(rows.values()))
        # In the values, too, an entry of the list becomes the observation.
        here: dict[Node, Node] = {self.entry: entry}
        here |= {Subscript(self.lists[axis], (self.entry,)): row for axis, row in rows.items()}
        indices = tuple(rows.get(axis, index) for axis, index in enumerate(self.indices))
        filled = Assign(Subscript(Name(variable), indices), self.operator, changed(self.value, here.get))
        heads = " ".join(f"for ({row} in 1 : {self.variable.sizes[axis]})" for axis, row in rows.items())
        loop = f"{heads} {{ if ({entry} != 0) {{ {filled} }} }}"
        return f"{{ {self.first} {loop} }}" if self.first else loop


@dataclass
class _Writer:
    """The form of statements by observations, and the declarations that it needs."""

    program: Program
    lines: list[str] = field(default_factory=list)
    """Additional transformed data."""

    def __post_init__(self) -> None:
        program = self.program
        self.symbols = Symbols.of(program)
        data = program.data_declarations
        self.data = {one.name for one in data}
        self.integers = {one.name for one in data if one.base == "int" and not one.all_dims}
        self.listing = {one.name: one.all_dims[0] for one in data if one.base == "int" and len(one.all_dims) == 1}
        self.counts = counting(program)
        own = program.changing_names
        changing = [one for one in program.declarations if one.name in own]
        # Variables of several scopes may share a name.
        count = Counter(one.name for one in changing)
        self.variables = {one.name: one for one in changing if count[one.name] == 1}

    def written(self, statement: Statement) -> str:
        """Return a statement that assigns to listed places by observations; empty for others."""
        return "\n".join(map(self._by_observation, self._fillings(statement)))

    def _by_observation(self, filling: _Filling) -> str:
        inverse, variable = self.symbols.fresh("stansub_place"), filling.variable
        self.lines += filling.inverse(inverse)
        is_line = len(variable.all_dims) == 1 and variable.base in (*_VECTORS, "real")
        if filling.operator != "=" or not filling.reads <= self.data or not is_line:
            return filling.loop(inverse, variable.name)
        # Values that are data are assigned in transformed data.
        values = self.symbols.fresh("stansub_value")
        self.lines += [f"{variable.type.plain} {values} = {variable.type.plain.zero};", filling.loop(inverse, values)]
        value = Subscript(Name(values), (Name(f"{_ROW}_0"),))
        return replace(filling, first=None, value=value).loop(inverse, variable.name)

    def _fillings(self, statement: Statement) -> list[_Filling]:
        """Return the assignments of a statement, if it does nothing but assign to listed places."""
        if isinstance(statement, Assign):
            return self._slice(statement)
        if not isinstance(statement, For) or not names(statement.lower, statement.upper) <= self.data:
            return []
        found = [one for inner in statement.body if isinstance(inner, Assign) for one in self._entry(statement, inner)]
        return found if len(found) == len(statement.body) else []

    def _slice(self, statement: Assign) -> list[_Filling]:
        """Return ``x[list] = values;``, also with more integer indices, as a loop over the list."""
        base, indices = flat(statement.place)
        if not indices or not self._is_list(indices[0]):
            return []
        listed, *others = indices
        length = self.listing[listed.name] if isinstance(listed, Name) else Call("size", (listed,))
        values = statement.expression if isinstance(statement.expression, Name) else _VALUES
        place = Subscript(base, (Subscript(listed, (_ENTRY,)), *others))
        entry = Assign(place, statement.operator, Subscript(values, (_ENTRY,)))
        found = self._fillings(For(_ENTRY.name, Literal("1"), length, (entry,)))
        if values is not _VALUES:
            return found

        def first(kind: str) -> Declaration:
            return Declaration(SizedType((), kind, dims=(length,)), _VALUES.name, statement.expression)

        return [
            replace(one, first=first(one.variable.base))
            for one in found
            if one.variable.base in _VECTORS and len(one.variable.all_dims) == 1
        ]

    def _entry(self, loop: For, statement: Assign) -> Iterator[_Filling]:
        """Yield ``x[list[k]] = values[k];`` in a loop over k, also with more indices that are such or integers."""
        base, indices = flat(statement.place)
        variable = self.variables.get(base.name) if isinstance(base, Name) else None
        if variable is None or not self._is_of_observations(variable) or len(indices) > len(variable.all_dims):
            return
        entry, lists = Name(loop.variable), dict[int, Expression]()
        for axis, index in enumerate(indices):
            if isinstance(index, Subscript) and index.indices == (entry,) and self._is_list(index.base):
                lists[axis] = index.base
        others = (index for axis, index in enumerate(indices) if axis not in lists)
        if 0 in lists and len(set(lists.values())) == len(lists) and all(map(self._is_integer, others)):
            bounds = loop.lower, loop.upper
            yield _Filling(variable, indices, lists, statement.operator, statement.expression, entry, *bounds)

    def _is_of_observations(self, variable: Declaration) -> bool:
        """Return whether a variable has a value for each observation."""
        return any(map(self.counts, variable.all_dims[:1])) and names(*variable.all_dims) <= self.data

    def _is_list(self, index: Expression) -> bool:
        """Return whether an index is a list of integers of the data, or a slice of one."""
        match index:
            case Name(name):
                return name in self.listing
            case Subscript(Name(name), (Slice(),)):
                return name in self.listing and names(index) <= self.data
        return False

    def _is_integer(self, index: Expression) -> bool:
        return isinstance(index, Literal) or (isinstance(index, Name) and index.name in self.integers)
