"""Posteriors of numpy functions, for models without a Stan program, for examples and for tests."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import orjson
from numpy.typing import NDArray

from stansub._loop import FunctionEvaluator
from stansub.errors import InputError
from stansub.output.layout import Layout
from stansub.target.blocks import Blocks
from stansub.target.remainders import LinearPredictors, NoPredictorsError, RemainderBounds
from stansub.target.split import Dynamics, Split
from stansub.types import FloatArray, IntArray

Places = NDArray[np.int32]


class FunctionFactors:
    """A posterior as the sum of a global log density and log likelihoods of observations, given as numpy functions.

    It can replace a posterior, its whole log density or the population of a decision. Every function returns None, or
    non-finite numbers, outside its domain.

    Parameters
    ----------
    names : sequence of str
        Names of the parameters, which are all unconstrained; elements as ``beta.1``.
    n_observations : int
    log_lik : callable
        From theta, shape (dim,), and numbers of observations from 0, int32 of shape (n,), to their log likelihoods,
        shape (n,).
    log_density : callable, optional
        From theta to the global log density, such as priors. 0 by default.
    log_lik_gradient : callable, optional
        From the arguments of ``log_lik`` to gradients, shape (n, dim). The search for modes needs gradients.
    log_density_gradient : callable, optional
        From theta to the gradient, shape (dim,); needed with ``log_density`` and ``log_lik_gradient``.
    predictors : LinearPredictors, optional
        How observations depend on theta, if only through linear predictors; gives the bounds of factorised decisions.
    block_size : int, optional
        Adjacent observations per factor. By default 1, and `stansub.sample` chooses the size that suits the test.
    name : str
        Name in messages and in the output.

    Raises
    ------
    InputError
        If there are no parameters or observations, names are invalid, or only one of two gradients is given; later, if
        a function returns invalid values.
    """

    kind: ClassVar[Literal["functions"]] = "functions"
    pilot: ClassVar[None] = None

    def __init__(
        self,
        names: Sequence[str],
        n_observations: int,
        log_lik: Callable[[FloatArray, Places], FloatArray | None],
        *,
        log_density: Callable[[FloatArray], float | None] | None = None,
        log_lik_gradient: Callable[[FloatArray, Places], FloatArray | None] | None = None,
        log_density_gradient: Callable[[FloatArray], FloatArray] | None = None,
        predictors: LinearPredictors | None = None,
        block_size: int | None = None,
        name: str = "functions",
    ) -> None:
        size = 1 if block_size is None else block_size
        _check_names(names)
        if not names or not all(isinstance(one, numbers.Integral) and one >= 1 for one in (n_observations, size)):
            raise InputError("a posterior of functions needs at least one parameter, one observation and blocks of one")
        given = (log_lik, log_density, log_lik_gradient, log_density_gradient)
        if not callable(log_lik) or not all(one is None or callable(one) for one in given):
            raise InputError(
                "a posterior of functions needs callables: log_lik(theta, observations) and, optionally, "
                "log_density(theta)"
            )
        if log_density is not None and log_lik_gradient is not None and log_density_gradient is None:
            raise InputError("if log_density and log_lik_gradient are given, give log_density_gradient too")
        self.name, self.names, self.any_block_size = name, list(names), block_size is None
        self.known_predictors = predictors
        self._log_lik, self._log_lik_gradient = log_lik, log_lik_gradient
        self._log_density, self._log_density_gradient = log_density, log_density_gradient
        self._cut(n_observations, size)

    def _cut(self, n_observations: int, size: int) -> None:
        self.blocks = Blocks(n_observations, min(size, n_observations))
        self._starts, self._sizes = self.blocks.starts, self.blocks.sizes

    @property
    def dim(self) -> int:
        """Return the number of parameters."""
        return len(self.names)

    @property
    def has_gradients(self) -> bool:
        """Return whether there are gradients of the log likelihoods."""
        return self._log_lik_gradient is not None

    def recut(self, size: int) -> FunctionFactors:
        """Return the same posterior with ``size`` observations per factor."""
        other = copy(self)
        other.any_block_size = False
        other._cut(self.blocks.n_observations, size)
        return other

    def split(self, progress: Callable[[str], None] | None = None) -> Split:
        """Raise an error: there is no program to split."""
        raise NoPredictorsError("a posterior of Python functions has no Stan program to split")

    def dynamics(self, progress: Callable[[str], None] | None = None) -> Dynamics | None:
        """Return None: trajectories in C++ need a Stan program."""
        return None

    def predictors(self, progress: Callable[[str], None] | None = None) -> LinearPredictors:
        """Return the linear predictors that were given."""
        if self.known_predictors is None:
            raise NoPredictorsError("no linear predictors were given with the functions")
        return self.known_predictors

    def remainder_bounds(
        self, anchor: FloatArray, cholesky: FloatArray, order: int, *, progress: Callable[[str], None] | None = None
    ) -> RemainderBounds:
        """Return the bounds of the linear predictors that were given."""
        return self.predictors(progress).bounds(anchor, cholesky, self.blocks, order)

    def single(self, places: NDArray[np.int64]) -> FunctionEvaluator:
        """Return an evaluator whose blocks are the observations at these places, one each."""
        single, chosen = self.recut(1), places.astype(np.int32)
        return FunctionEvaluator(
            self.dim, len(places), self._global, lambda theta, which: single._factors(theta, chosen[which])
        )

    @property
    def full(self) -> FunctionFactors:
        """Return itself, the whole log density."""
        return self

    @property
    def population(self) -> FunctionFactors:
        """Return itself, the population of factors."""
        return self

    def param_unc_names(self) -> list[str]:
        """Return names of the parameters."""
        return self.names

    def param_names(self, *, include_tp: bool = False, include_gq: bool = False) -> list[str]:
        """Return names of the parameters; nothing is constrained."""
        return self.names

    def param_constrain(
        self,
        theta: FloatArray,
        *,
        include_tp: bool = False,
        include_gq: bool = False,
        rng: Any = None,
        out: FloatArray | None = None,
    ) -> FloatArray:
        """Return a copy of ``theta``."""
        if out is None:
            return np.array(theta)
        out[:] = theta
        return out

    def param_unconstrain_json(self, values: bytes) -> FloatArray:
        """Return ``theta`` from values by name, given as JSON."""
        given, theta = orjson.loads(values), np.empty(self.dim)
        for name, places in Layout.from_names(self.names).columns.items():
            try:
                theta[places] = np.asarray(given[name], np.float64).reshape(places.shape)
            except (TypeError, ValueError) as error:
                raise InputError(f"{name} must be {places.shape or 'a number'}, in numbers ({error})") from error
        return theta

    def writer(
        self, *, include_tp: bool, include_gq: bool, rng: Any, n_written: int, columns: NDArray[np.int64]
    ) -> _Copier:
        """Return a writer of parameters at ``columns`` of many draws."""
        return _Copier(columns)

    def info(self) -> str:
        """Return nothing: there are no versions."""
        return ""

    def rng(self, seed: int) -> None:
        """Return None: there are no generated quantities."""

    def log_density(self, theta: FloatArray) -> float:
        """Return the global log density plus all log likelihoods; -inf where undefined."""
        evaluator = self.evaluator()
        total = evaluator.global_log_density(theta) + evaluator.block_log_lik(theta).sum()
        return float(total) if np.isfinite(total) else -np.inf

    def log_density_or_message(self, theta: FloatArray) -> tuple[float, str]:
        """Return the log density, without a message."""
        return self.log_density(theta), ""

    def log_densities(self, points: Sequence[FloatArray]) -> list[tuple[float, str]]:
        """Return log densities at some points, without messages."""
        return [self.log_density_or_message(theta) for theta in points]

    def in_passing(self) -> FunctionFactors:
        """Return itself."""
        return self

    def in_bulk(self) -> FunctionFactors:
        """Return itself: one call evaluates many blocks."""
        return self

    def evaluator(self) -> FunctionEvaluator:
        """Return a new evaluator of the factors."""
        gradient = None if self._log_lik_gradient is None else self._gradient
        return FunctionEvaluator(self.dim, len(self.blocks), self._global, self._factors, gradient)

    def _global(self, theta: FloatArray) -> float | None:
        value = 0.0 if self._log_density is None else self._log_density(theta)
        if value is None or isinstance(value, float):
            return value
        return float(_of_shape(value, (), "log_density"))

    def _factors(self, theta: FloatArray, which: Places) -> FloatArray | None:
        observations, firsts = self._observations(which)
        values = self._log_lik(theta, observations)
        if values is None:
            return None
        return np.add.reduceat(_of_shape(values, observations.shape, "log_lik"), firsts)

    def _gradient(self, theta: FloatArray, which: Places) -> tuple[float, FloatArray] | None:
        assert self._log_lik_gradient is not None
        value = self._global(theta)
        slope = np.zeros(self.dim)
        if self._log_density_gradient is not None:
            slope = _of_shape(self._log_density_gradient(theta), slope.shape, "log_density_gradient")
        if which.size:
            values, (observations, _) = self._factors(theta, which), self._observations(which)
            slopes = self._log_lik_gradient(theta, observations)
            if value is None or values is None or slopes is None:
                return None
            value += float(values.sum())
            slope = slope + _of_shape(slopes, (observations.size, self.dim), "log_lik_gradient").sum(0)
        if value is None or not np.isfinite(value) or not np.isfinite(slope).all():
            return None
        return value, np.ascontiguousarray(slope, np.float64)

    def _observations(self, which: Places) -> tuple[Places, IntArray]:
        """Return the observations of some factors, and the start of each factor among them."""
        if self.blocks.size == 1:
            return which, np.arange(which.size, dtype=np.int32)
        sizes = self._sizes[which]
        firsts = np.cumsum(sizes) - sizes
        places = np.arange(sizes.sum()) + np.repeat(self._starts[which] - firsts, sizes)
        return places.astype(np.int32), firsts.astype(np.int32)


@dataclass(frozen=True)
class _Copier:
    """Writes parameters, which are the unconstrained ones."""

    columns: NDArray[np.int64]

    def write(self, theta: FloatArray, out: FloatArray, stop: Places) -> tuple[int, bytes]:
        out[:] = theta[:, self.columns]
        return len(theta), b""


def _check_names(names: Sequence[str]) -> None:
    if isinstance(names, str) or not all(isinstance(one, str) for one in names):
        raise InputError(f"names of parameters must be a list of strings, such as ['mu'], not {names!r}")
    try:
        Layout.from_names(list(names))
    except ValueError as error:
        raise InputError(f"names of parameters are inconsistent (elements are named `beta.1`): {error}") from error


def _of_shape(values: Any, shape: tuple[int, ...], name: str) -> FloatArray:
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} did not return an array of numbers ({error})") from error
    if array.shape != shape:
        raise InputError(f"{name} returned an array of shape {array.shape}, expected {shape}")
    return array
