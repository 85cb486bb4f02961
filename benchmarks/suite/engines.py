"""The engines by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from suite import hmcecs, laplace, logistic, metropolis, nuts, scalable_mh, zigzag
from suite.base import Engine, Run, compile_program, nothing_to_compile

# Of plain Metropolis, whose rate some seconds tell as well as an hour.
_PLAIN_SECONDS = 20.0


def _stansub(about: str, **options: Any) -> Engine:
    return Engine(about, partial(metropolis.sample, **options), compile_program)


def _plain(about: str, **options: Any) -> Engine:
    run = partial(metropolis.sample, **metropolis.PLAIN, **options)
    return Engine(about, run, compile_program, _PLAIN_SECONDS)


def _logistic(about: str, run: Callable[..., Run], **options: Any) -> Engine:
    return Engine(about, partial(run, **options), logistic.prepare)


ENGINES: dict[str, Engine] = {
    "stansub-auto": _stansub("`stansub sample` without options"),
    "stansub-learned": _stansub("`--test factorised --bounds learned`", test="factorised", bounds="learned"),
    "stansub-pocock": _plain("plain random walk, `--test pocock`", test="pocock"),
    "stansub-austerity": _plain("plain random walk, `--test austerity --epsilon 0.05`", test="austerity", epsilon=0.05),
    "stansub-bernstein": Engine(
        "plain random walk, `--test bernstein`", metropolis.bernstein, metropolis.prepare_bernstein, _PLAIN_SECONDS
    ),
    "stansub-exact": _plain("plain random walk on all the data", test="exact"),
    "nuts-cmdstan": Engine("CmdStan's NUTS, its defaults", nuts.cmdstan, nothing_to_compile),
    "nuts-nutpie": Engine("nutpie's NUTS, its defaults", nuts.nutpie, compile_program),
    "numpyro-hmcecs": Engine(
        "numpyro's HMCECS, second-order proxy, subsamples of 1,000", hmcecs.run, nothing_to_compile
    ),
    "scalable-mh": _logistic("scalable Metropolis-Hastings, SMH-2 as published, logistic regression", scalable_mh.run),
    "scalable-mh-l2": _logistic("the same with bounds in Euclidean norms", scalable_mh.run, euclidean=True),
    "zigzag-cv": _logistic("zig-zag process with control variates as published, logistic regression", zigzag.run),
    "zigzag-cv-scaled": _logistic("the same in coordinates divided by their sds", zigzag.run, scaled=True),
    "laplace-ir": Engine("Laplace approximation with importance resampling", laplace.run, compile_program),
}
