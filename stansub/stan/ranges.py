"""Range constants for the concentration bounds, from functions in the user's program.

The bounds need the range of the differences log p(x_i | theta') - log p(x_i | theta) over the population. It is at most
twice C = max_i |difference| (Bardenet et al. 2014, below eq. 7), and a Lipschitz constant L_i of each observation
gives |difference| <= L_i ||theta' - theta||. With control variates, the range of the remainders is needed, which
follows from a bound on a derivative of each observation's log likelihood (Bardenet, Doucet and Holmes 2017, section 7).
Sums over blocks add the constants of their observations.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from stansub.acceptance.ranges import RangeFunction
from stansub.stan.passes import rewrite
from stansub.stan.posterior import Posterior
from stansub.stan.toolchain import build
from stansub.stan.toolchain.library import Library
from stansub.types import FloatArray

_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_double),
    ctypes.POINTER(ctypes.c_double),
    ctypes.POINTER(ctypes.c_double),
)

# Functions of the program that return a constant for each observation. For control variates of order 1 and 2 it bounds
# the operator norm of the second and the third derivative in the unconstrained parameters, at any values.
LIPSCHITZ = "log_lik_lipschitz_i"


def range_function(posterior: Posterior, *, progress: Callable[[str], None] | None = None) -> RangeFunction:
    """Compile the program's ``log_lik_range``, whose value times 2 x block size is the range of the block sums.

    Raises `InputError` if the program has no such function.
    """
    code = rewrite.range_program(rewrite.silenced(posterior.program))
    goal = "for log_lik_range"
    file = build.compile_library(code, name=posterior.name, suffix="_range", goal=goal, progress=progress)
    model, dim = posterior.values.model(Library(file)), posterior.dim
    rng, n_out = model.rng(0), model.param_num(include_gq=True)

    def evaluate(_: int, theta: object, proposed: object, out: object) -> int:
        both = np.concatenate([_view(theta, dim), _view(proposed, dim)])
        try:
            out[0] = model.param_constrain(both, include_gq=True, rng=rng, out=np.empty(n_out))[-1]  # type: ignore[index]
        except Exception:  # ctypes would print any other error and report success
            return 1
        return 0

    callback = _CALLBACK(evaluate)
    address = ctypes.cast(callback, ctypes.c_void_p).value or 0
    return RangeFunction(address, factor=2.0 * posterior.blocks.size, owner=callback)


def _view(pointer: object, size: int) -> FloatArray:
    return np.ctypeslib.as_array(pointer, shape=(size,))
