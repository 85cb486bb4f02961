"""The engine "exact": stansub's own sampler of the same program, with every decision on all the data.

It shows what subsampled decisions change and save. It cannot show whether the sampler itself reaches every mode.
"""

from __future__ import annotations

import warnings

from rich.console import Console

from stansub import clock
from stansub._version import __version__
from stansub.errors import DrawsWarning
from stansub.nuts.base import Missing, Program, Run, Settings
from stansub.output.inference_data import attrs, group
from stansub.run.sample import sample
from stansub.stan.compilation import compile_model
from stansub.stan.data.data import Data
from stansub.stan.source import Source

_COUNTS = ("n_steps", "n_accepted", "n_obs_used", "n_obs_evaluated", "warmup_n_obs_evaluated")


def unavailable() -> Missing | None:
    """Return None: the engine needs only the compiler that stansub needs."""
    return None


def run(program: Program, data: Data, settings: Settings, *, console: Console, show: bool) -> Run:
    """Run all chains, with as many steps as iterations requested; `adapt_delta` has no effect."""
    began = clock.now()
    compiled = compile_model(Source(program.name, program.code, program.syntax))
    compiled_at = clock.now()
    with warnings.catch_warnings():
        # The comparison reports reasons to distrust either side.
        warnings.simplefilter("ignore", DrawsWarning)
        idata = sample(
            compiled,
            data,
            test="exact",
            chains=settings.chains,
            parallel_chains=settings.parallel_chains,
            iter_warmup=settings.iter_warmup,
            iter_sampling=settings.iter_sampling,
            seed=settings.seed,
            console=console,
            show_progress=show,
        )
    facts = attrs(idata)
    values = {str(name): array.values for name, array in group(idata, "posterior").data_vars.items()}
    accepted = group(idata, "sample_stats")["accepted"].values
    return Run(
        posterior=values,
        sample_stats={"accepted": accepted},
        warmup_time=facts["warmup_time"],
        sampling_time=facts["sampling_time"],
        warmup_n_gradients=(),
        n_gradients=(),
        time_split="measured",
        compile_time=compiled_at - began,
        setup_time=float(facts["setup_time"]),
        wall_time=float(facts["wall_time"]),
        version=__version__,
        method="exact",
        counts={name: facts[name] for name in _COUNTS},
        facts={name: str(facts[name]) for name in ("test", "guarantee")},
    )
