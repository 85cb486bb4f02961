"""Values assigned to a list of observations, written observation by observation: missing values that are parameters.

``x[gone] = guess;`` reads a list of places in all of the data, so that the data cannot be cut. In the program that is
written here ``transformed data`` hold the inverse of the list, which is the place in it of each observation and is cut
with the other data; what follows is a loop over observations. The log density is that of the user's program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from stansub.stan.derived import derived, may_be_derived
from stansub.stan.exported import plain
from stansub.stan.rewrite import extended
from stansub.stan.sizes import changing_names, data_declarations, declarations, main_size
from stansub.stan.syntax import (
    Assign,
    Braces,
    Declaration,
    For,
    If,
    Profile,
    Program,
    Span,
    Statement,
    Token,
    children,
    matching,
    names,
    split,
    tokenize,
)

# The variable of loops over lists that the program writes as slices, and those of loops over observations.
_ENTRY, _ROW = "stansub_entry", "stansub_row"
# What such slices are assigned, where it has no name.
_VALUES = "stansub_values"
# Variables of one dimension whose values may be computed before they are put in their places.
_VECTORS = frozenset({"vector", "row_vector"})
_ZEROS = {"vector": "rep_vector(0, {})", "row_vector": "rep_row_vector(0, {})", "real": "rep_array(0.0, {})"}


def observation_by_observation(program: Program) -> Program | None:
    """The program that fills observations one by one where the user's does by lists of their places.

    Parameters
    ----------
    program : Program
        The parsed program.

    Returns
    -------
    Program or None
        A program with the same parameters, log density and generated quantities. None where no values are assigned to
        places that data list, of a variable with a value for each observation.
    """
    if not may_be_derived(program):
        return None
    writer = _Writer(program)
    for block in (program.transformed_parameters, program.model):
        writer.scope(block.statements)
    if not writer.found:
        return None
    return derived(extended(program, writer.lines, writer.found), "the program by observations")


@dataclass(frozen=True)
class _Filling:
    """``for (entry in lower : upper) variable[indices] = value;`` with places of ``variable`` that data list.

    Attributes
    ----------
    variable : Declaration
    indices : tuple of str
    lists : dict of int to str
        Which of the indices are ``list[entry]``, and of what list.
    operator, value, entry, lower, upper : str
    first : str
        What is declared for it.
    """

    variable: Declaration
    indices: tuple[str, ...]
    lists: dict[int, str]
    operator: str
    value: str
    entry: str
    lower: str
    upper: str
    first: str = ""

    @property
    def sizes(self) -> dict[int, str]:
        """The variable's sizes along the listed indices."""
        return {axis: self.variable.all_dims[axis] for axis in self.lists}

    @property
    def reads(self) -> set[str]:
        """Variables that the values are computed from."""
        return names(f"{self.first} {self.value}") - {self.entry, _VALUES}

    def inverse(self, name: str) -> list[str]:
        """What declares and fills the inverse of the lists."""
        dims, places = ", ".join(self.sizes.values()), ", ".join(self.indices[axis] for axis in self.lists)
        return [
            f"array[{dims}] int {name} = rep_array(0, {dims});",
            f"for ({self.entry} in {self.lower} : {self.upper}) {{ {name}[{places}] = {self.entry}; }}",
        ]

    def loop(self, name: str, variable: str) -> str:
        """The loop over observations by an inverse, which assigns to a variable."""
        rows = {axis: f"{_ROW}_{axis}" for axis in self.lists}
        entry, indices = f"{name}[{', '.join(rows.values())}]", list(self.indices)
        for axis, row in rows.items():
            indices[axis] = row
        heads = " ".join(f"for ({rows[axis]} in 1 : {size})" for axis, size in self.sizes.items())
        filled = f"if ({entry} != 0) {{ {variable}[{', '.join(indices)}] {self.operator} {self._at(entry, rows)}; }}"
        loop = f"{heads} {{ {filled} }}"
        return f"{{ {self.first} {loop} }}" if self.first else loop

    def _at(self, entry: str, rows: dict[int, str]) -> str:
        """The value for an observation: ``list[entry]`` is the observation, the entry is that of the inverse."""
        tokens, pieces, at, k = tokenize(self.value), list[str](), 0, 0
        places = {self.lists[axis]: row for axis, row in rows.items()}
        while k < len(tokens):
            length, text = 1, entry if tokens[k].text == self.entry else tokens[k].text
            if [one.text for one in tokens[k + 1 : k + 4]] == ["[", self.entry, "]"] and text in places:
                length, text = 4, places[text]
            pieces += [self.value[at : tokens[k].span.start], text]
            k += length
            at = tokens[k - 1].span.end
        return "".join([*pieces, self.value[at:]])


@dataclass
class _Writer:
    """Statements that are written anew, and what is to be declared for them.

    Attributes
    ----------
    program : Program
    found : list of (Span, str)
        Statements, and the same by observations.
    lines : list of str
        More of the transformed data.
    """

    program: Program
    found: list[tuple[Span, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    _number: int = 0

    def __post_init__(self) -> None:
        program = self.program
        data = data_declarations(program)
        self.data = {one.name for one in data}
        self.integers = {one.name for one in data if one.base == "int" and not one.all_dims}
        self.listing = {one.name: one.all_dims[0] for one in data if one.base == "int" and len(one.all_dims) == 1}
        self.size = main_size(program)
        dims = (dim for one in program.parameters.declarations for dim in one.all_dims)
        self.of_parameters = set().union(*map(names, dims))
        changing = [one for one in declarations(program) if one.name in changing_names(program)]
        # A name may be that of variables of several scopes.
        count = Counter(one.name for one in changing)
        self.variables = {one.name: one for one in changing if count[one.name] == 1}

    def scope(self, statements: Sequence[Statement]) -> None:
        """Write statements that assign to listed places anew."""
        for statement in statements:
            if isinstance(statement, If | Braces | Profile):
                for inner in children(statement):
                    self.scope(inner)
            elif fillings := self._fillings(statement):
                self.found.append((statement.span, "\n".join(map(self._written, fillings))))

    def _written(self, filling: _Filling) -> str:
        """The same by observations."""
        self._number += 1
        inverse, variable = f"stansub_place_{self._number}", filling.variable
        self.lines += filling.inverse(inverse)
        zeros = _ZEROS.get(variable.base)
        if filling.operator != "=" or not filling.reads <= self.data or len(variable.all_dims) > 1 or zeros is None:
            return filling.loop(inverse, variable.name)
        # Values that are data are put in their places there.
        values = f"stansub_value_{self._number}"
        declared = plain(variable, values).removesuffix(";")
        self.lines += [f"{declared} = {zeros.format(variable.all_dims[0])};", filling.loop(inverse, values)]
        return replace(filling, first="", value=f"{values}[{_ROW}_0]").loop(inverse, variable.name)

    def _fillings(self, statement: Statement) -> list[_Filling]:
        """What a statement does, where it does nothing but assign to listed places."""
        if isinstance(statement, Assign):
            return list(self._slice(statement))
        if not isinstance(statement, For) or not names(f"{statement.lower} {statement.upper}") <= self.data:
            return []
        found = [one for inner in statement.body if isinstance(inner, Assign) for one in self._entry(statement, inner)]
        return found if len(found) == len(statement.body) else []

    def _slice(self, statement: Assign) -> Iterator[_Filling]:
        """``x[list] = values;``, also with more indices that are integers."""
        place = self._place(statement)
        if place is None or not self._is_list(place[1][0]) or not all(map(self._is_integer, place[1][1:])):
            return
        variable, (listed, *others) = place
        length, value, first = self.listing.get(listed, f"size({listed})"), statement.expression, ""
        if len(tokenize(value)) > 1:
            if variable.base not in _VECTORS or len(variable.all_dims) > 1:
                return
            first, value = f"{variable.base}[{length}] {_VALUES} = {value};", _VALUES
        indices, entries = (f"{listed}[{_ENTRY}]", *others), (_ENTRY, "1", length)
        yield _Filling(variable, indices, {0: listed}, statement.operator, f"{value}[{_ENTRY}]", *entries, first)

    def _entry(self, loop: For, statement: Assign) -> Iterator[_Filling]:
        """``x[list[k]] = values[k];`` in a loop over k, also with more indices that are such or integers."""
        place = self._place(statement)
        if place is None:
            return
        variable, indices = place
        lists = {axis: index for axis, one in enumerate(indices) if (index := self._listed(one, loop.variable))}
        others = (index for axis, index in enumerate(indices) if axis not in lists)
        if 0 in lists and len(set(lists.values())) == len(lists) and all(map(self._is_integer, others)):
            entries = loop.variable, loop.lower, loop.upper
            yield _Filling(variable, indices, lists, statement.operator, statement.expression, *entries)

    def _place(self, statement: Assign) -> tuple[Declaration, tuple[str, ...]] | None:
        """The variable of observations to parts of which a statement assigns, and the indices."""
        tokens = tokenize(statement.place)
        variable = self.variables.get(tokens[0].text)
        if variable is None or not set().union(*map(names, variable.all_dims)) <= self.data:
            return None
        indices, at = list[str](), 1
        while at < len(tokens) and tokens[at].text == "[":
            close = matching(tokens, at)
            indices += [_text(statement.place, part) for part in split(tokens[at + 1 : close], ",")]
            at = close + 1
        if at < len(tokens) or not 0 < len(indices) <= len(variable.all_dims):
            return None
        sized = names(variable.all_dims[0])
        counts = bool(sized) and (self.size in sized or not sized & self.of_parameters)
        return (variable, tuple(indices)) if counts else None

    def _is_list(self, index: str) -> bool:
        """Whether an index is a list of integers of the data, or a slice of one."""
        tokens = tokenize(index)
        if not tokens or tokens[0].text not in self.listing:
            return False
        is_slice = len(tokens) > 3 and matching(tokens, 1) == len(tokens) - 1 and len(split(tokens[2:-1], ":")) == 2
        return len(tokens) == 1 or (is_slice and names(index) <= self.data)

    def _is_integer(self, index: str) -> bool:
        tokens = tokenize(index)
        return len(tokens) == 1 and (tokens[0].kind == "number" or index in self.integers)

    def _listed(self, index: str, entry: str) -> str:
        """The list whose entry an index is; nothing for another."""
        tokens = [one.text for one in tokenize(index)]
        return tokens[0] if tokens[1:] == ["[", entry, "]"] and tokens[0] in self.listing else ""


def _text(code: str, tokens: Sequence[Token]) -> str:
    return code[tokens[0].span.start : tokens[-1].span.end] if tokens else ""
