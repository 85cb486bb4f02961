"""Posterior draws from Stan models with tall data, by subsampled Metropolis-Hastings.

>>> import stansub
>>> idata = stansub.sample("model.stan", "data.json")  # doctest: +SKIP
"""

from importlib import metadata

try:
    __version__ = metadata.version("stansub")
except metadata.PackageNotFoundError:  # run from a source tree
    __version__ = "0+unknown"

from stansub.decision.boundary import (
    Austerity,
    Bernstein,
    BernsteinSerfling,
    Exact,
    Fixed,
    Geometric,
    Hoeffding,
    Pocock,
)
from stansub.errors import InputError, RunError, StansubError
from stansub.model.compiled import CompiledModel, compile_model
from stansub.output.inference_data import read as read_draws
from stansub.output.inference_data import write as write_draws
from stansub.sampling.run import sample

__all__ = [
    "Austerity",
    "Bernstein",
    "BernsteinSerfling",
    "CompiledModel",
    "Exact",
    "Fixed",
    "Geometric",
    "Hoeffding",
    "InputError",
    "Pocock",
    "RunError",
    "StansubError",
    "__version__",
    "compile_model",
    "read_draws",
    "sample",
    "write_draws",
]
