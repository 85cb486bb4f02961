"""Log densities of small Stan programs, evaluated from their trees: numbers, vectors, matrices and integer arrays."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy

from stansub.stan.syntax import (
    Assign,
    Braces,
    Call,
    Choice,
    Declaration,
    Expression,
    For,
    Group,
    If,
    Infix,
    Literal,
    Name,
    Prefix,
    Profile,
    Program,
    Return,
    Slice,
    Statement,
    Subscript,
    Target,
    Tilde,
    Transpose,
    flat,
    normalised,
)

OPERATORS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a @ b if np.ndim(a) and np.ndim(b) else a * b,
    ".*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "./": lambda a, b: a / b,
    "<=": lambda a, b: int(a <= b),
    "<": lambda a, b: int(a < b),
    ">": lambda a, b: int(a > b),
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
}
FUNCTIONS: dict[str, Any] = {
    "exp": np.exp,
    "log": np.log,
    "square": np.square,
    "inv": lambda x: 1 / x,
    "diag_pre_multiply": lambda v, m: v[:, np.newaxis] * m,
    "diag_post_multiply": lambda m, v: m * v,
    "tanh": np.tanh,
    "sum": np.sum,
    "mean": lambda x: np.mean(x) if np.size(x) else 0.0,
    "max": lambda *x: np.max(x) if np.size(x) else 0.0,
    "size": len,
    "rows": len,
    "rep_array": lambda x, *n: np.full((*n, *np.shape(x)), x),
    "to_vector": np.asarray,
    "to_row_vector": np.asarray,
    "rep_vector": lambda x, n: np.full(n, float(x)),
    "rep_matrix": lambda x, *n: np.full(n, float(x)),
    "head": lambda x, n: x[:n],
    "row": lambda x, at: x[at - 1],
    "col": lambda x, at: x[:, at - 1],
    "segment": lambda x, first, n: x[first - 1 : first - 1 + n],
    "log_sum_exp": lambda *x: np.logaddexp.reduce(np.hstack(x)),
    "log1m": lambda x: np.log1p(-x),
    "log_inv_logit": lambda x: -np.logaddexp(0, -x),
    "log1m_inv_logit": lambda x: -np.logaddexp(0, x),
    "log_mix": lambda p, a, b: np.logaddexp(np.log(p) + a, np.log1p(-p) + b),
    "lgamma": scipy.special.gammaln,
    "lchoose": lambda n, k: -scipy.special.betaln(n - k + 1, k + 1) - np.log1p(n),
    "dot_product": np.dot,
    "num_elements": np.size,
    "beta_lpdf": lambda y, a, b: np.sum(scipy.stats.beta.logpdf(y, a, b)),
    "bernoulli_lpmf": lambda y, p: np.sum(scipy.stats.bernoulli.logpmf(y, p)),
    "bernoulli_logit_lpmf": lambda y, a: np.sum(scipy.stats.bernoulli.logpmf(y, scipy.special.expit(a))),
    "binomial_lpmf": lambda y, n, p: np.sum(scipy.stats.binom.logpmf(y, n, p)),
    "binomial_logit_lpmf": lambda y, n, a: np.sum(scipy.stats.binom.logpmf(y, n, scipy.special.expit(a))),
    "categorical_lpmf": lambda y, p: np.sum(np.log(p[y - 1])),
    "categorical_logit_lpmf": lambda y, a: np.sum((a - np.logaddexp.reduce(a))[y - 1]),
    "multinomial_lpmf": lambda y, p: scipy.stats.multinomial.logpmf(y, np.sum(y), p),
    "normal_lpdf": lambda y, m, s: np.sum(-0.5 * ((y - m) / s) ** 2 - np.log(s) - 0.5 * math.log(2 * math.pi)),
}


class _ReturnedError(Exception):
    """A function has returned a value."""


class _Run:
    """Statements with the values of their variables."""

    def __init__(self, program: Program, values: dict[str, Any]) -> None:
        self.program, self.values, self.target = program, values, 0.0

    def run(self, statements: Sequence[Statement]) -> None:
        for one in statements:
            match one:
                case Declaration(_, name, value):
                    dims = [self.of(dim) for dim in one.all_dims]
                    self.values[name] = np.zeros(dims, int if one.base == "int" else float) if dims else 0.0
                    if value is not None:
                        self.values[name] = np.copy(self.of(value)) if dims else self.of(value)
                case Assign(place, operator, expression):
                    self.assign(place, operator, self.of(expression))
                case For(variable, lower, upper, body):
                    for k in range(self.of(lower), self.of(upper) + 1):
                        self.values[variable] = k
                        self.run(body)
                case If(condition):
                    self.run(one.bodies[0] if self.of(condition) else one.bodies[1])
                case Braces(body) | Profile(body=body):
                    self.run(body)
                case Target(expression):
                    self.target += float(np.sum(self.of(expression)))
                case Tilde(left, Call(name, arguments), ()):
                    self.target += self.call(f"{name}_lpdf", [self.of(each) for each in (left, *arguments)])
                case Return(value) if value is not None:
                    raise _ReturnedError(self.of(value))
                case _:
                    raise TypeError(f"no rule evaluates {one}")

    def assign(self, place: Expression, operator: str, value: Any) -> None:
        base, indices = flat(place)
        assert isinstance(base, Name)
        if operator != "=":
            value = OPERATORS[operator.removesuffix("=")](self.of(place), value)
        if indices:
            self.values[base.name][self.at(indices)] = value
        else:
            self.values[base.name] = np.copy(value) if np.ndim(value) else value

    def at(self, indices: Sequence[Expression]) -> tuple[Any, ...]:
        return tuple(
            slice(
                None if one.lower is None else self.of(one.lower) - 1, None if one.upper is None else self.of(one.upper)
            )
            if isinstance(one, Slice)
            else self.of(one) - 1
            for one in indices
        )

    def of(self, expression: Expression) -> Any:
        match expression:
            case Literal(text):
                return float(text) if "." in text else int(text)
            case Name(name):
                return self.values[name]
            case Group("(", (inside,)):
                return self.of(inside)
            case Prefix("-", operand):
                return -self.of(operand)
            case Prefix("!", operand):
                return int(not self.of(operand))
            case Transpose(operand):
                return np.transpose(self.of(operand))
            case Infix(operator, left, right):
                return OPERATORS[operator](self.of(left), self.of(right))
            case Choice(condition, then, orelse):
                return self.of(then if self.of(condition) else orelse)
            case Subscript():
                base, indices = flat(expression)
                return self.of(base)[self.at(indices)]
            case Call(name, arguments):
                return self.call(name, [self.of(each) for each in arguments])
        raise TypeError(f"no rule evaluates {expression}")

    def call(self, name: str, arguments: Sequence[Any]) -> Any:
        for function in self.program.functions:
            if function.name == name:
                assert function.body is not None
                inside = _Run(self.program, dict(zip((one.name for one in function.arguments), arguments, strict=True)))
                try:
                    inside.run(function.body)
                except _ReturnedError as returned:
                    return returned.args[0]
        return FUNCTIONS[normalised(name)](*arguments)


def log_density(program: Program, data: Mapping[str, Any], parameters: Mapping[str, Any]) -> float:
    """The log density of a program without constraints' Jacobians."""
    run = _Run(program, {**data, **parameters})
    for block in (program.transformed_data, program.transformed_parameters, program.model):
        run.run(block.statements)
    return run.target


def transformed_data(program: Program, data: Mapping[str, Any]) -> dict[str, Any]:
    """The data with the program's transformed data."""
    run = _Run(program, dict(data))
    run.run(program.transformed_data.statements)
    return run.values
