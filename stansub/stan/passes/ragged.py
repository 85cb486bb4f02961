"""Rewriting of groups of different sizes, each of consecutive rows, as a loop over rows.

``segment(y, pos, n[j]) ~ normal(alpha[j], sigma); pos += n[j];`` in a loop over groups reads data at places that
earlier groups determine, so the data cannot be cut. In the program written here, ``transformed data`` hold the group of
each row, and the density is in a loop over rows. If rows of a group are used together, they hold where each group
starts. Groups with parameters whose first and last rows are data, as in ``y[from[j]:to[j]]``, are rewritten, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

from stansub.stan.passes.rewriting import Edits, Pass, RefusedError, Symbols
from stansub.stan.passes.series.affine import Affine
from stansub.stan.reading.reach import BY_ELEMENT, ELEMENTWISE
from stansub.stan.reading.sizes import DENSITIES, JOINT
from stansub.stan.syntax import (
    Assign,
    Call,
    Declaration,
    Expression,
    For,
    Infix,
    Literal,
    Name,
    Node,
    Prefix,
    Program,
    Slice,
    Statement,
    Subscript,
    added_density,
    changed,
    find,
    flat,
    names,
    printed,
    substituted,
    walk,
    writes,
)

_ONE = Literal("1")


@Pass.named("groups of different sizes row by row, or from where they start")
def by_rows(program: Program) -> Edits:
    """Write densities of segments of data in loops over rows.

    If anything else is computed from segments, the groups are the observations, and data tell where each starts.

    Refused if there are parameters for each of these groups.
    """
    symbols, lines, replacements = Symbols.of(program), list[str](), []
    for loop in program.model.statements:
        found = _Ragged.of(program, _with_values(loop)) if isinstance(loop, For) else None
        if found is None or not found.terms:
            continue
        odd, has_own = found.odd(), not names(found.loop.upper).isdisjoint(program.sizes_of_parameters)
        if found.last is not None and (odd is not None or not has_own or not found.is_of_segments):
            continue
        if found.is_of_segments and odd is None:
            group, row = symbols.fresh("stansub_group"), symbols.fresh("stansub_row")
            lines.append(found.groups(group))
            replacements.append((found.loop.span, found.over_rows(group, row)))
        elif not has_own:
            start = symbols.fresh("stansub_start")
            lines.append(found.starts(start))
            replacements.append((found.loop.span, found.from_starts(start)))
        elif found.is_of_segments:
            raise RefusedError(f"combines rows of a group other than in densities of single rows (`{odd}`)", loop.span)
    return Edits(lines, replacements)


def _with_values(loop: For) -> For:
    """Return a loop with the values with which variables are declared instead of these, unless they change.

    These are integers, and containers of which each group has its own size.
    """
    values: dict[str, Expression] = {}
    for one in loop.body:
        if not isinstance(one, Declaration) or one.value is None:
            continue
        sizes = names(*(substituted(size, values) for size in one.all_dims))
        if loop.variable in sizes or (one.base == "int" and not one.all_dims):
            values[one.name] = substituted(one.value, values)
    rest = [one for one in loop.body if not (isinstance(one, Declaration) and one.name in values)]
    if not values or any(writes(one) & values.keys() for one in walk(rest)):
        return loop
    return replace(loop, body=tuple(substituted(one, values) for one in rest))


def _without_indices(node: Node) -> Node | None:
    return flat(node)[0] if isinstance(node, Subscript) else None


@dataclass(frozen=True)
class _Ragged:
    """A loop over groups, one after the other in the data or from where data say to where data say."""

    loop: For
    position: Expression
    """Start of the group."""
    n: Expression
    """Number of rows of the group."""
    last: Expression | None
    """The last row of the group, if data say where it is."""
    rows: Mapping[str, Expression]
    """Data by name, with their numbers of rows."""
    own: Set[str]
    """Densities that are functions of the program, which may use all values at once."""

    @classmethod
    def of(cls, program: Program, loop: For) -> _Ragged | None:
        """Return a loop of the model block as such a loop; None if it is another."""
        data = program.data_declarations
        if loop.lower != _ONE or not names(loop.upper) <= {one.name for one in data}:
            return None
        found = cls._running(program, loop) or cls._from_to(loop, {one.name for one in data})
        if found is None:
            return None
        own = {one.name.rpartition("_")[0] for one in program.functions if one.name.endswith(DENSITIES)}
        position, n, last = found
        return cls(loop, position, n, last, {one.name: one.all_dims[0] for one in data if one.all_dims}, own)

    @staticmethod
    def _running(program: Program, loop: For) -> tuple[Expression, Expression, None] | None:
        """Return a variable to which the loop adds the number of rows of each group, and that number."""
        match loop.body[-1:]:
            case (Assign(Name() as position) as last,):
                n = last.increment
            case _:
                return None
        if not isinstance(n, Subscript) or not isinstance(n.base, Name) or n.indices != (Name(loop.variable),):
            return None
        begins = [one for one in program.model.statements if isinstance(one, Declaration) and one.name == position.name]
        others = [one for one in program.model.statements if one.span != loop.span and one not in begins]
        if [one.value for one in begins] != [_ONE] or position.name in names(*others):
            return None
        return position, n, None

    @staticmethod
    def _from_to(loop: For, data: set[str]) -> tuple[Expression, Expression, Expression] | None:
        """Return the first row, the number of rows and the last row of each group, as data give them."""
        bounds: list[tuple[Expression | None, Expression | None]]
        bounds = [(one.lower, one.upper) for one in find(Slice, loop.body)]
        bounds += [(one.lower, one.upper) for one in find(For, loop.body)]
        for one in find(Call, loop.body):
            if one.name == "segment":
                _, begin, n = one.arguments
                bounds.append((begin, (Affine.of(begin) + Affine.of(n) - 1).expression))
        for first, last in bounds:
            if first is None or last is None or not names(first, last) <= data | {loop.variable}:
                continue
            if isinstance(first, Subscript) and loop.variable in names(first) & names(last):
                return first, (Affine.of(last) - Affine.of(first) + 1).expression, last
        return None

    @property
    def marks(self) -> set[str]:
        """Return the variables that say which rows belong to the group, without those that say which group it is."""
        places = [self.position, *([] if self.last is None else [self.last])]
        return names(*(changed(one, _without_indices) for one in places)) - {self.loop.variable}

    @property
    def body(self) -> tuple[Statement, ...]:
        """Return what the loop does with a group."""
        return self.loop.body[: -1 if self.last is None else None]

    @property
    def _end(self) -> Affine:
        return Affine.of(self.position) + Affine.of(self.n) - 1

    @property
    def is_of_segments(self) -> bool:
        """Return whether the loop reads segments, all of data of the same size."""
        return len({self.rows[name] for name in self.segments}) == 1

    @property
    def terms(self) -> list[Statement]:
        """Return statements of the loop that read the start of the group."""
        return [one for one in self.body if self.marks & names(one)]

    @property
    def segments(self) -> list[str]:
        """Return the data whose segments are read."""
        found = [name for one in find(Expression, self.terms) if (name := self.segment(one))]
        for loop in self.terms:
            if isinstance(loop, For) and (row := self._row(loop)) is not None:
                read = [one for one in find(Subscript, loop.body) if Affine.of(one.indices[0]) == row]
                found += [one.base.name for one in read if isinstance(one.base, Name) and one.base.name in self.rows]
        return found

    def _row(self, loop: For) -> Affine | None:
        """Return the place of a row in a loop over the rows of this group; None for other loops."""
        start, one = Affine.of(self.position), Affine.of(Name(loop.variable))
        if loop.lower == _ONE and loop.upper == self.n:
            return start + one - 1
        is_own = loop.lower == self.position and Affine.of(loop.upper) == self._end
        return one if is_own else None

    def _at_row(self, loop: For, row: str) -> list[Statement]:
        """Return what a loop over the rows of this group does with a row."""
        place = self._row(loop)

        def change(node: Node) -> Node | None:
            return Name(row) if isinstance(node, Expression) and Affine.of(node) == place else None

        return [changed(one, change) for one in loop.body]

    def segment(self, node: Node) -> str:
        """Return the data of which a node is this group's segment; empty for other nodes."""
        match node:
            case Call("segment", (Name(name), first, n)) if name in self.rows:
                if first == self.position and Affine.of(n) == Affine.of(self.n):
                    return name
            case Subscript(Name(name), (Slice(Expression() as first, Expression() as last), *_)) if name in self.rows:
                if first == self.position and Affine.of(last) == self._end:
                    return name
        return ""

    def odd(self) -> Node | None:
        """Return what is computed from segments other than densities of their elements; None if there is nothing."""
        own = {one.name for one in find(Declaration, self.loop.body)}
        for one in self.terms:
            if names(one) & (own - {inner.name for inner in find(Declaration, [one])}):
                return one
            if isinstance(one, For) and self._row(one) is not None:
                if names(*self._at_row(one, "")) & (self.marks | {one.variable}):
                    return one
                continue
            density = added_density(one)
            if density is None or density.name in self.own or density.name.startswith(JOINT) or "_glm" in density.name:
                return one
            for value in (density.left, *density.arguments):
                if (found := self._together(value)) is not None:
                    return found
        return None

    def _together(self, node: Expression) -> Expression | None:
        """Return the part of an expression that uses rows together; None if each is used separately."""
        if self.segment(node) or self.marks.isdisjoint(names(node)):
            return None
        match node:
            case Infix("*", left, right) if all(self.marks & names(side) for side in (left, right)):
                return node
            case Infix("+" | "-" | "*" | "/" | ".*" | "./" | ".^") | Prefix("+" | "-"):
                pass
            case Call(name) if name in ELEMENTWISE:
                pass
            case _:
                return node
        parts = (self._together(part) for part in node.parts if isinstance(part, Expression))
        return next((part for part in parts if part is not None), None)

    def starts(self, name: str) -> str:
        """Return the code that declares and fills the starts of the groups."""
        fill = f"{name}[{self.loop.variable}] = {self.position}; {self.position} += {self.n};"
        return f"array[{self.loop.upper}] int {name};\n{{ int {self.position} = 1; {self.loop.head} {{ {fill} }} }}"

    def from_starts(self, starts: str) -> str:
        """Return the loop over groups with data as their starts."""
        start = Subscript(Name(starts), (Name(self.loop.variable),))
        body = [changed(one, lambda node: start if node == self.position else None) for one in self.body]
        return f"{self.loop.head} {{ {printed(body)} }}"

    def groups(self, name: str) -> str:
        """Return the code that declares and fills the group of each row."""
        size, j, at = self.rows[self.segments[0]], self.loop.variable, self.position
        if self.last is not None:
            fill = f"{name}[{at} : {self.last}] = rep_array({j}, max(0, {self.n}));"
            return f"array[{size}] int {name} = rep_array(0, {size});\n{self.loop.head} {{ {fill} }}"
        fill = f"{name}[{at} : {at} + {self.n} - 1] = rep_array({j}, {self.n});"
        loop = f"{self.loop.head} {{ {fill} {at} += {self.n}; }}"
        return f"array[{size}] int {name} = rep_array(0, {size});\n{{ int {at} = 1; {loop} }}"

    def over_rows(self, group: str, row: str) -> str:
        """Return the loop over rows, placed after the rest of the loop over groups."""
        rest = tuple(one for one in self.body if one not in self.terms)
        mine = Subscript(Name(group), (Name(row),))

        def change(node: Node) -> Node | None:
            if name := self.segment(node):
                others = node.indices[1:] if isinstance(node, Subscript) else ()
                return Subscript(Name(name), (Name(row), *others))
            if isinstance(node, Infix) and node.operator in BY_ELEMENT and self.marks & names(node):
                return changed(Infix(BY_ELEMENT[node.operator], node.left, node.right), change)
            return mine if node == Name(self.loop.variable) else None

        by_row = [self._at_row(one, row) if isinstance(one, For) else [one] for one in self.terms]
        terms = printed([changed(one, change) for inner in by_row for one in inner])
        loop = f"for ({row} in 1 : {self.rows[self.segments[0]]}) {{ if ({mine} != 0) {{ {terms} }} }}"
        head = f"{self.loop.head} {{ {printed(rest)} }}\n" if rest else ""
        return f"{head}{loop}"
