"""A compiled library seen through BridgeStan's C API.

``bridgestan.StanModel`` binds one model at a time from Python. Block instances need thousands of models of one library
and the addresses of its functions, so the same documented C functions are bound once per library here.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from stansub import _loop
from stansub.errors import InputError, RunError
from stansub.stan.toolchain.arrays import Arrays, Variable
from stansub.stan.toolchain.stored_order import in_stored_order
from stansub.target.threads import THREADS
from stansub.types import FloatArray, Places

_int, _unsigned, _flag, _text, _pointer = ctypes.c_int, ctypes.c_uint, ctypes.c_bool, ctypes.c_char_p, ctypes.c_void_p
_double_p, _rows_p = ctypes.POINTER(ctypes.c_double), ctypes.POINTER(ctypes.c_int64)
_error_p = ctypes.POINTER(_pointer)

# Output of a program is discarded, because its likelihood is evaluated thousands of times.
_ignore_print = ctypes.CFUNCTYPE(None, _pointer, _int)(lambda text, size: None)

# Function of libraries compiled in a home made by this package; BridgeStan's own accept only JSON.
_FROM_ARRAYS = "stansub_model_construct"
_SIGNATURES: dict[str, tuple[type | None, list[type]]] = {
    "bs_model_construct": (_pointer, [_text, _unsigned, _error_p]),
    "bs_model_destruct": (None, [_pointer]),
    "bs_free_error_msg": (None, [_pointer]),
    "bs_model_info": (_text, [_pointer]),
    "bs_param_names": (_text, [_pointer, _flag, _flag]),
    "bs_param_unc_names": (_text, [_pointer]),
    "bs_param_num": (_int, [_pointer, _flag, _flag]),
    "bs_param_unc_num": (_int, [_pointer]),
    "bs_param_constrain": (_int, [_pointer, _flag, _flag, _double_p, _double_p, _pointer, _error_p]),
    "bs_param_unconstrain_json": (_int, [_pointer, _text, _double_p, _error_p]),
    "bs_log_density": (_int, [_pointer, _flag, _flag, _double_p, _double_p, _error_p]),
    "bs_log_density_gradient": (_int, [_pointer, _flag, _flag, _double_p, _double_p, _double_p, _error_p]),
    "bs_set_print_callback": (_int, [type(_ignore_print), _error_p]),
    "bs_rng_construct": (_pointer, [_unsigned, _error_p]),
    "bs_rng_destruct": (None, [_pointer]),
    _FROM_ARRAYS: (_pointer, [ctypes.POINTER(Variable), _int, _rows_p, ctypes.c_int64, _unsigned, _error_p]),
}


# Stan Math prepares threads for gradients under `reduce_sum` by their ids and counts the thread that loads a library as
# prepared. If that thread ended, another with its id would count as prepared and crash, so this thread never ends. A
# forked process has no threads but the one that forked, and so another loader.
@cache
def _loader() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="stansub-loader")


os.register_at_fork(after_in_child=_loader.cache_clear)


class Library:
    """A loaded library.

    Parameters
    ----------
    path : Path
        A library built by ``stansub.stan.toolchain.build.compile_library``. The dynamic loader caches by path, so a
        path must never be reused for other contents.

    Attributes
    ----------
    takes_arrays : bool
        Whether models can be made from data in memory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.handle = _loader().submit(ctypes.CDLL, str(path)).result()
        except OSError as error:
            raise RunError(
                f"cannot load the compiled model {path}: {error}; run `stansub doctor --clear` to compile it again"
            ) from error
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self.handle, name, None)
            if function is None and name == _FROM_ARRAYS:
                continue
            if function is None:
                raise RunError(
                    f"the compiled model {path} has no function {name}: BridgeStan's sources have another version or "
                    "are damaged; unset BRIDGESTAN or set it to other sources, then run `stansub doctor --clear`"
                )
            function.restype = result
            function.argtypes = arguments
        self.takes_arrays = hasattr(self.handle, _FROM_ARRAYS)
        self.handle.bs_set_print_callback(_ignore_print, None)

    def __reduce__(self) -> tuple[type[Library], tuple[Path]]:
        """Reload the same file in another process."""
        return Library, (self.path,)

    def address(self, function: str) -> int:
        """Return the address of an exported function, for the decision loop."""
        return ctypes.cast(getattr(self.handle, function), ctypes.c_void_p).value or 0

    def take_message(self, error: ctypes.c_void_p) -> str:
        """Return the text of a C API error, and free it."""
        if not error.value:
            return "unknown error"
        text = ctypes.string_at(error.value).decode("utf-8", errors="replace").strip()
        self.handle.bs_free_error_msg(error)
        return text

    def model(self, data: bytes, *, seed: int = 0) -> Model:
        """Instantiate the program with data; InputError if the program rejects the data."""
        return self._made("bs_model_construct", data, seed)

    def model_of(self, data: Arrays, rows: Places | None = None, *, seed: int = 0) -> Model:
        """Instantiate the program with data in memory, or with some rows of them, if the library accepts them.

        Raises `InputError` if the program rejects the data.
        """
        chosen = None if rows is None else np.ascontiguousarray(rows, dtype=np.int64)
        some = (None, 0) if chosen is None else (chosen.ctypes.data_as(_rows_p), len(chosen))
        return self._made(_FROM_ARRAYS, data.variables, len(data.variables), *some, seed)

    def _made(self, function: str, *arguments: Any) -> Model:
        error = ctypes.c_void_p()
        pointer = getattr(self.handle, function)(*arguments, ctypes.byref(error))
        if not pointer:
            raise InputError(self.take_message(error))
        return Model(self, pointer)


class _Owner:
    """Owner of an object of a library, which it frees."""

    _free: ClassVar[str]
    """Function of the C API that frees the object."""

    def __init__(self, library: Library, pointer: int) -> None:
        self.library = library
        self.pointer = pointer

    def __del__(self) -> None:
        if getattr(self, "pointer", 0):
            getattr(self.library.handle, self._free)(self.pointer)

    def __reduce__(self) -> NoReturn:
        """Refuse to copy the owner: two would free one object."""
        raise TypeError(
            "a program with its data can be neither pickled nor copied: pickle the compiled model and the data, and "
            "call `with_data` where they are unpickled"
        )


class Rng(_Owner):
    """Owner of a ``bs_rng``."""

    _free = "bs_rng_destruct"

    def __init__(self, library: Library, seed: int) -> None:
        super().__init__(library, library.handle.bs_rng_construct(seed, None))
        if not self.pointer:
            raise RunError("the compiled model could not create a random number generator")


class Model(_Owner):
    """Owner of a ``bs_model``: the program with data.

    Log densities are on the unconstrained space, with Jacobian terms and all constants (``jacobian=True``,
    ``propto=False``), so that terms of different instances can be added and subtracted.
    """

    _free = "bs_model_destruct"

    def __init__(self, library: Library, pointer: int) -> None:
        super().__init__(library, pointer)
        self.dim: int = library.handle.bs_param_unc_num(pointer)

    def rng(self, seed: int) -> Rng:
        """Return a random number generator for generated quantities."""
        return Rng(self.library, seed)

    def info(self) -> str:
        """Return versions and compile-time flags as the library reports them."""
        return str(self.library.handle.bs_model_info(self.pointer).decode())

    def param_names(self, *, include_tp: bool = False, include_gq: bool = False) -> list[str]:
        """Return indexed names of the constrained parameters, with indices separated by periods, last index slowest."""
        text = self.library.handle.bs_param_names(self.pointer, include_tp, include_gq).decode()
        return text.split(",") if text else []

    def param_unc_names(self) -> list[str]:
        """Return indexed names of the unconstrained parameters, in the order of their values."""
        text = self.library.handle.bs_param_unc_names(self.pointer).decode()
        return in_stored_order(text.split(","), self.param_names(), self.param_constrain) if text else []

    def param_num(self, *, include_tp: bool = False, include_gq: bool = False) -> int:
        """Return the number of constrained values."""
        return int(self.library.handle.bs_param_num(self.pointer, include_tp, include_gq))

    def log_density(self, theta: FloatArray) -> float:
        """Return the log density at ``theta``; nan if the program raises an error or rejects."""
        value, _ = self.log_density_or_message(theta)
        return value

    def log_density_or_message(self, theta: FloatArray) -> tuple[float, str]:
        """Return the log density; if the program raises an error, nan and its message."""
        value = ctypes.c_double()
        message = self._call("bs_log_density", False, True, self._checked(theta), ctypes.byref(value))
        return (value.value if message is None else float("nan")), message or ""

    def log_densities(self, points: Sequence[FloatArray]) -> list[tuple[float, str]]:
        """Return log densities at some points, with messages if the program raises errors; uses threads."""
        with ThreadPoolExecutor(max_workers=THREADS) as pool:
            return list(pool.map(self.log_density_or_message, points))

    def log_density_gradient(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """Return the log density and its gradient, shape (dim,); RunError if the program raises an error."""
        value, gradient = ctypes.c_double(), np.empty(self.dim)
        message = self._call(
            "bs_log_density_gradient", False, True, self._checked(theta), ctypes.byref(value), gradient
        )
        if message is not None:
            raise RunError(message)
        return value.value, gradient

    def param_constrain(
        self,
        theta: FloatArray,
        *,
        include_tp: bool = False,
        include_gq: bool = False,
        rng: Rng | None = None,
        out: FloatArray | None = None,
    ) -> FloatArray:
        """Return constrained values, in the order of `param_names`; RunError if the program raises an error."""
        theta = self._checked(theta)
        if out is None:
            out = np.empty(self.param_num(include_tp=include_tp, include_gq=include_gq))
        pointer = rng.pointer if rng else None
        message = self._call("bs_param_constrain", include_tp, include_gq, theta, out, pointer)
        if message is not None:
            raise RunError(message)
        return out

    def writer(
        self, *, include_tp: bool, include_gq: bool, rng: Rng, n_written: int, columns: NDArray[np.int64]
    ) -> _loop.Writer:
        """Return a writer of values of many draws, those at ``columns`` of `param_constrain`, for one thread.

        Model and generator must outlive it.
        """
        library = self.library
        return _loop.Writer(
            self.pointer,
            rng.pointer,
            library.address("bs_param_constrain"),
            library.address("bs_free_error_msg"),
            include_tp=include_tp,
            include_gq=include_gq,
            n_written=n_written,
            columns=columns,
        )

    def param_unconstrain_json(self, values: bytes) -> FloatArray:
        """Return the unconstrained parameters, shape (dim,), of constrained ones in JSON.

        Raises `InputError` when a parameter is missing, has the wrong size or violates its constraint.
        """
        out = np.empty(self.dim)
        message = self._call("bs_param_unconstrain_json", values, out)
        if message is not None:
            raise InputError(message)
        return out

    def _call(self, function: str, *arguments: Any) -> str | None:
        """Call a function of the C API with pointers to arrays; return its message if it fails."""
        error, handle = ctypes.c_void_p(), self.library.handle
        given = (one.ctypes.data_as(_double_p) if isinstance(one, np.ndarray) else one for one in arguments)
        code = getattr(handle, function)(self.pointer, *given, ctypes.byref(error))
        return self.library.take_message(error) if code else None

    def _checked(self, theta: FloatArray) -> FloatArray:
        """Return unconstrained parameters as the library reads them."""
        theta = np.ascontiguousarray(theta, dtype=np.float64)
        if theta.shape != (self.dim,):
            raise ValueError(f"theta has shape {theta.shape}, the model has {self.dim} unconstrained parameters")
        return theta


def addresses(models: Sequence[Model]) -> NDArray[np.uint64]:
    """Return addresses of models, for the decision loop."""
    return np.array([model.pointer for model in models], dtype=np.uint64)
