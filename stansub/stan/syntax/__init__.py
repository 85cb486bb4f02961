"""Stan programs as trees, expressions included.

stanc's canonical text (includes resolved, no comments, braces around bodies, no superfluous parentheses) is split
into tokens (`tokens`) and parsed (`parser`) to statements (`statements`) and expressions (`expressions`). The string of
a tree is the program again.
"""

from stansub.stan.syntax.expressions import (
    PRODUCTS,
    QUOTIENTS,
    Call,
    Choice,
    Expression,
    Factor,
    Group,
    Infix,
    Literal,
    Member,
    Name,
    Prefix,
    Slice,
    Subscript,
    Transpose,
    factors_of,
    flat,
    name_of,
    summands,
)
from stansub.stan.syntax.nodes import Node, changed, find, outermost
from stansub.stan.syntax.parser import TYPES, parse, parse_expression, parse_types
from stansub.stan.syntax.program import Argument, Block, Function, Program
from stansub.stan.syntax.queries import (
    REDUCE_SUM,
    Density,
    added_density,
    calls,
    density_of,
    is_carried,
    names,
    normalised,
    read_by,
    shortened,
    substituted,
    writes,
)
from stansub.stan.syntax.statements import (
    Assign,
    Braces,
    Compound,
    Declaration,
    Empty,
    For,
    ForEach,
    If,
    Jacobian,
    Jump,
    Loop,
    Perform,
    Profile,
    Return,
    Statement,
    Target,
    Tilde,
    While,
    placed,
    printed,
    unlooped,
    walk,
)
from stansub.stan.syntax.tokens import NOWHERE, Span, Token, matching, tokenize
from stansub.stan.syntax.types import SIZES, Bound, SizedType, UnsizedType
