"""Functions, blocks and programs."""

from __future__ import annotations

from dataclasses import dataclass, field

from stansub.stan.syntax.nodes import Node
from stansub.stan.syntax.queries import calls, names
from stansub.stan.syntax.statements import Declaration, Statement, body_text, printed, walk
from stansub.stan.syntax.tokens import NOWHERE, Span
from stansub.stan.syntax.types import UnsizedType, listed


@dataclass(frozen=True)
class Argument:
    """An argument of a function: its name, type and whether it must be data."""

    name: str
    type: UnsizedType
    data_only: bool = False

    def __str__(self) -> str:
        return f"{'data ' if self.data_only else ''}{self.type} {self.name}"


@dataclass(frozen=True)
class Function(Node):
    """A function of the ``functions`` block; ``body`` is None if it is only declared."""

    name: str
    return_type: UnsizedType
    arguments: tuple[Argument, ...]
    body: tuple[Statement, ...] | None
    span: Span = NOWHERE

    def __str__(self) -> str:
        head = f"{self.return_type} {self.name}({listed(self.arguments)})"
        return f"{head};" if self.body is None else f"{head} {body_text(self.body)}"


@dataclass(frozen=True)
class Block(Node):
    """A program block."""

    statements: tuple[Statement, ...] = ()
    span: Span = NOWHERE
    """The block with its name and braces; empty if the program has no such block."""
    inside: Span = NOWHERE
    """Text between the braces."""

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        """The block's own variables, without those of nested scopes."""
        return tuple(statement for statement in self.statements if isinstance(statement, Declaration))


@dataclass(frozen=True)
class Program(Node):
    """A parsed program; `text` gives the text of a span of ``code``."""

    code: str
    functions: tuple[Function, ...] = ()
    functions_block: Block = field(default_factory=Block)
    data: Block = field(default_factory=Block)
    transformed_data: Block = field(default_factory=Block)
    parameters: Block = field(default_factory=Block)
    transformed_parameters: Block = field(default_factory=Block)
    model: Block = field(default_factory=Block)
    generated_quantities: Block = field(default_factory=Block)

    def __hash__(self) -> int:
        return hash(self.code)  # the rest follows from it

    @property
    def evaluated(self) -> tuple[Statement, ...]:
        """Statements of transformed parameters and model, which every evaluation runs."""
        return (*self.transformed_parameters.statements, *self.model.statements)

    @property
    def data_declarations(self) -> list[Declaration]:
        """Variables of data and transformed data."""
        return [*self.data.declarations, *self.transformed_data.declarations]

    @property
    def declarations(self) -> list[Declaration]:
        """All variables except generated quantities."""
        outer = [*self.data_declarations, *self.parameters.declarations, *self.transformed_parameters.declarations]
        return [*outer, *(one for one in walk(self.model.statements) if isinstance(one, Declaration))]

    @property
    def data_names(self) -> set[str]:
        """Names of data and transformed data."""
        return {one.name for one in self.data_declarations}

    @property
    def changing_names(self) -> set[str]:
        """All names whose values may change between evaluations."""
        return {one.name for one in self.declarations} - self.data_names

    @property
    def sizes_of_parameters(self) -> set[str]:
        """Names in the dimensions of parameters."""
        return names(*(dim for one in self.parameters.declarations for dim in one.all_dims))

    @property
    def symbols(self) -> set[str]:
        """All names in the program: its variables, the functions that it calls, and its own functions."""
        return names(self) | {one.name for one in calls(self)} | {one.name for one in self.functions}

    def text(self, span: Span) -> str:
        """Return the program's text within a span."""
        return self.code[span.start : span.end]

    def with_blocks(self, **inside: str | None) -> str:
        """Return the code of the program with the inside of some blocks replaced; None leaves a block out."""
        lines = []
        for name in ("functions_block", *BLOCKS):
            if name not in inside:
                lines.append(self.text(getattr(self, name).span))
            elif (text := inside[name]) is not None:
                lines.append(f"{name.removesuffix('_block').replace('_', ' ')} {{\n{text}\n}}")
        return "\n".join(lines)

    def __str__(self) -> str:
        blocks = []
        if self.functions or self.functions_block.span != NOWHERE:
            blocks.append(("functions", "\n".join(map(str, self.functions))))
        for name in BLOCKS:
            block: Block = getattr(self, name)
            if block.statements or block.span != NOWHERE:
                blocks.append((name.replace("_", " "), printed(block.statements)))
        return "\n".join(f"{name} {{\n{text}\n}}" for name, text in blocks)


BLOCKS = ("data", "transformed_data", "parameters", "transformed_parameters", "model", "generated_quantities")
