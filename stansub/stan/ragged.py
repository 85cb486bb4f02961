"""Rewriting of consecutive groups of different sizes in a vector as a loop over rows.

``segment(y, pos, n[j]) ~ normal(alpha[j], sigma); pos += n[j];`` in a loop over groups reads data at places that
earlier groups determine, so the data cannot be cut. In the program written here, ``transformed data`` hold the group of
each row, and the density is in a loop over rows. If rows of a group are used together, they hold where each group
starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stansub.stan.reach import BY_ELEMENT, ELEMENTWISE
from stansub.stan.rewriting import Edits, Pass, RefusedError, Symbols
from stansub.stan.series.affine import Affine
from stansub.stan.sizes import JOINT
from stansub.stan.syntax import (
    Assign,
    Call,
    Declaration,
    Expression,
    For,
    Group,
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
    bare,
    changed,
    find,
    names,
    printed,
)

_ONE = Literal("1")


@Pass.named("groups of different sizes row by row, or from where they start")
def by_rows(program: Program) -> Edits | None:
    """Write densities of segments of data in loops over rows.

    If anything else is computed from segments, the groups are the observations, and data tell where each starts.

    Refused if there are parameters for each of these groups.
    """
    symbols, lines, replacements = Symbols.of(program), list[str](), []
    for loop in program.model.statements:
        found = _Ragged.of(program, loop) if isinstance(loop, For) else None
        if found is None or not found.terms:
            continue
        odd = found.odd()
        if found.is_of_segments and odd is None:
            group, row = symbols.fresh("stansub_group"), symbols.fresh("stansub_row")
            lines.append(found.groups(group))
            replacements.append((found.loop.span, found.over_rows(group, row)))
        elif names(found.loop.upper).isdisjoint(program.sizes_of_parameters):
            start = symbols.fresh("stansub_start")
            lines.append(found.starts(start))
            replacements.append((found.loop.span, found.from_starts(start)))
        elif found.is_of_segments:
            raise RefusedError(f"combines rows of a group other than in densities of single rows (`{odd}`)", loop.span)
    return Edits(lines, replacements) if replacements else None


@dataclass(frozen=True)
class _Ragged:
    """A loop over groups, one after the other in the data.

    Attributes
    ----------
    position : Name
        Start of the group.
    n : Expression
        Number of rows of the group.
    rows : mapping
        Data by name, with their numbers of rows.
    """

    loop: For
    position: Name
    n: Expression
    rows: Mapping[str, Expression]

    @classmethod
    def of(cls, program: Program, loop: For) -> _Ragged | None:
        """Return a loop of the model block as such a loop; None if it is another."""
        data = program.data_declarations
        if loop.lower != _ONE or not names(loop.upper) <= {one.name for one in data}:
            return None
        match loop.body[-1:]:
            case (Assign(Name() as position) as last,):
                n = last.increment
            case _:
                return None
        if not isinstance(n, Subscript) or not isinstance(n.base, Name) or n.indices != (Name(loop.variable),):
            return None
        begins = [one for one in program.model.statements if isinstance(one, Declaration) and one.name == position.name]
        others = [one for one in program.model.statements if one is not loop and one not in begins]
        if [one.value for one in begins] != [_ONE] or position.name in names(*others):
            return None
        return cls(loop, position, n, {one.name: one.all_dims[0] for one in data if one.all_dims})

    @property
    def is_of_segments(self) -> bool:
        """Return whether the loop reads segments, all of data of the same size."""
        return len({self.rows[name] for name in self.segments}) == 1

    @property
    def terms(self) -> list[Statement]:
        """Return statements of the loop that read the start of the group."""
        return [one for one in self.loop.body[:-1] if self.position.name in names(one)]

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
        if loop.lower == _ONE and bare(loop.upper) == self.n:
            return start + one - 1
        is_own = bare(loop.lower) == self.position and Affine.of(loop.upper) == start + Affine.of(self.n) - 1
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
            case Call("segment", (Name(name), self.position, self.n)) if name in self.rows:
                return name
            case Subscript(Name(name), (Slice(self.position, Expression() as last), *_)) if name in self.rows:
                match bare(last):
                    case Infix("-", end, Literal("1")) if bare(end) == Infix("+", self.position, self.n):
                        return name
        return ""

    def odd(self) -> Node | None:
        """Return what is computed from segments other than densities of their elements; None if there is nothing."""
        own = {one.name for one in find(Declaration, self.loop.body)}
        for one in self.terms:
            if names(one) & (own - {inner.name for inner in find(Declaration, [one])}):
                return one
            if isinstance(one, For) and self._row(one) is not None:
                if names(*self._at_row(one, "")) & {self.position.name, one.variable}:
                    return one
                continue
            density = added_density(one)
            if density is None or density.name.startswith(JOINT) or "_glm" in density.name:
                return one
            for value in (density.left, *density.arguments):
                if (found := self._together(value)) is not None:
                    return found
        return None

    def _together(self, node: Expression) -> Expression | None:
        """Return the part of an expression that uses rows together; None if each is used separately."""
        if self.segment(node) or self.position.name not in names(node):
            return None
        match node:
            case Infix("*", left, right) if all(self.position.name in names(side) for side in (left, right)):
                return node
            case Infix("+" | "-" | "*" | "/" | ".*" | "./" | ".^") | Prefix("+" | "-") | Group("("):
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
        body = [changed(one, lambda node: start if node == self.position else None) for one in self.loop.body[:-1]]
        return f"{self.loop.head} {{ {printed(body)} }}"

    def groups(self, name: str) -> str:
        """Return the code that declares and fills the group of each row."""
        size, j, at = self.rows[self.segments[0]], self.loop.variable, self.position
        fill = f"{name}[{at} : {at} + {self.n} - 1] = rep_array({j}, {self.n});"
        loop = f"{self.loop.head} {{ {fill} {at} += {self.n}; }}"
        return f"array[{size}] int {name} = rep_array(0, {size});\n{{ int {at} = 1; {loop} }}"

    def over_rows(self, group: str, row: str) -> str:
        """Return the loop over rows, placed after the rest of the loop over groups."""
        rest = tuple(one for one in self.loop.body[:-1] if one not in self.terms)
        mine = Subscript(Name(group), (Name(row),))

        def change(node: Node) -> Node | None:
            if name := self.segment(node):
                others = node.indices[1:] if isinstance(node, Subscript) else ()
                return Subscript(Name(name), (Name(row), *others))
            if isinstance(node, Infix) and node.operator in BY_ELEMENT and self.position.name in names(node):
                return changed(Infix(BY_ELEMENT[node.operator], node.left, node.right), change)
            return mine if node == Name(self.loop.variable) else None

        by_row = [self._at_row(one, row) if isinstance(one, For) else [one] for one in self.terms]
        terms = printed([changed(one, change) for inner in by_row for one in inner])
        loop = f"for ({row} in 1 : {self.rows[self.segments[0]]}) {{ if ({mine} != 0) {{ {terms} }} }}"
        head = f"{self.loop.head} {{ {printed(rest)} }}\n" if rest else ""
        return f"{head}{loop}"
