"""Posterior draws from Stan models with tall data, by subsampled Metropolis-Hastings.

>>> import stansub
>>> idata = stansub.sample("model.stan", "data.json")  # doctest: +SKIP
"""

from __future__ import annotations

# As in `typing`, whose import would slow down the command line.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stansub._version import __version__
    from stansub.acceptance.rules import (
        Austerity,
        Barker,
        Bernstein,
        BernsteinSerfling,
        Exact,
        Factorised,
        Fixed,
        Geometric,
        Hoeffding,
        Penalty,
        Pocock,
        Poisson,
    )
    from stansub.diagnostics.calibration import Calibration, calibrate
    from stansub.diagnostics.compare import compare
    from stansub.diagnostics.comparison import Comparison
    from stansub.diagnostics.elpd import Loo, loo_compare
    from stansub.diagnostics.exact import compare_exact
    from stansub.diagnostics.loo import loo
    from stansub.diagnostics.normality import diagnose
    from stansub.diagnostics.ppc import ppc
    from stansub.diagnostics.risk import risk
    from stansub.errors import DrawsWarning, InputError, RunError, StansubError
    from stansub.kernels.jumps import Auxiliary, Jump, Moved, ReversibleJump, Symmetric
    from stansub.kernels.particle_gibbs import ParticleGibbs, StateSpace
    from stansub.kernels.polya_gamma import PolyaGamma
    from stansub.kernels.proposals import RandomWalk
    from stansub.kernels.recipes import Metropolis, Mixture, OnParameters, Sequence
    from stansub.kernels.stiefel import StiefelWalk
    from stansub.nuts.reference import reference
    from stansub.output.inference_data import read as read_draws
    from stansub.output.inference_data import write as write_draws
    from stansub.run.config import SampleConfig
    from stansub.run.reading import read_checkpoint
    from stansub.run.sample import sample
    from stansub.stan.compilation import CompiledModel, compile_model
    from stansub.stan.data.sources import DataPartitions, DataSources
    from stansub.stan.posterior import Posterior
    from stansub.target.functions import FunctionFactors


__all__ = [
    "Austerity",
    "Auxiliary",
    "Barker",
    "Bernstein",
    "BernsteinSerfling",
    "Calibration",
    "Comparison",
    "CompiledModel",
    "DataPartitions",
    "DataSources",
    "DrawsWarning",
    "Exact",
    "Factorised",
    "Fixed",
    "FunctionFactors",
    "Geometric",
    "Hoeffding",
    "InputError",
    "Jump",
    "Loo",
    "Metropolis",
    "Mixture",
    "Moved",
    "OnParameters",
    "ParticleGibbs",
    "Penalty",
    "Pocock",
    "Poisson",
    "PolyaGamma",
    "Posterior",
    "RandomWalk",
    "ReversibleJump",
    "RunError",
    "SampleConfig",
    "Sequence",
    "StansubError",
    "StateSpace",
    "StiefelWalk",
    "Symmetric",
    "__version__",
    "calibrate",
    "compare",
    "compare_exact",
    "compile_model",
    "diagnose",
    "loo",
    "loo_compare",
    "ppc",
    "read_checkpoint",
    "read_draws",
    "reference",
    "risk",
    "sample",
    "write_draws",
]

# Modules and their public names, imported on first use, so that the command line starts fast.
_NAMES = {
    "_version": "__version__",
    "acceptance.rules": "Austerity Barker Bernstein BernsteinSerfling Exact Factorised Fixed Geometric Hoeffding "
    "Penalty Pocock Poisson",
    "diagnostics.calibration": "Calibration calibrate",
    "diagnostics.compare": "compare",
    "diagnostics.comparison": "Comparison",
    "diagnostics.elpd": "Loo loo_compare",
    "diagnostics.exact": "compare_exact",
    "diagnostics.loo": "loo",
    "diagnostics.normality": "diagnose",
    "diagnostics.ppc": "ppc",
    "diagnostics.risk": "risk",
    "errors": "DrawsWarning InputError RunError StansubError",
    "kernels.jumps": "Auxiliary Jump Moved ReversibleJump Symmetric",
    "kernels.particle_gibbs": "ParticleGibbs StateSpace",
    "kernels.polya_gamma": "PolyaGamma",
    "kernels.proposals": "RandomWalk",
    "kernels.recipes": "Metropolis Mixture OnParameters Sequence",
    "kernels.stiefel": "StiefelWalk",
    "nuts.reference": "reference",
    "output.inference_data": "read_draws write_draws",
    "run.config": "SampleConfig",
    "run.reading": "read_checkpoint",
    "run.sample": "sample",
    "stan.compilation": "CompiledModel compile_model",
    "stan.posterior": "Posterior",
    "stan.data.sources": "DataPartitions DataSources",
    "target.functions": "FunctionFactors",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    from importlib import import_module
    from importlib.util import find_spec

    if name == "_loop" and find_spec("stansub._loop") is None:
        raise ImportError(
            f"{__path__[0]} is a checkout whose extension module has not been built: run `pip install -e .` there, or "
            "start Python in another folder"
        )
    if name not in _HOMES:
        raise AttributeError(f"module 'stansub' has no attribute {name!r}")
    return getattr(import_module(f"stansub.{_HOMES[name]}"), name.removesuffix("_draws"))


def __dir__() -> list[str]:
    return __all__
