"""Hints for options of CmdStan and other samplers that stansub spells in another way, or does not have."""

from __future__ import annotations

from collections.abc import Collection

_ITERATIONS = "`iter_sampling` counts the steps of a chain after warmup, `iter_warmup` those before"
_INSTEAD = {
    "iter_sampling": "num-samples samples draws n-iter num-iter num-iterations num-draws",
    "iter_warmup": "num-warmup warmup burn-in burnin tune n-tune",
    "chains": "num-chains n-chains nchains",
    "parallel_chains": "cores num-cores n-cores jobs num-threads threads threads-per-chain",
    "seed": "random-seed",
    "inits": "init",
}
_ADAPTED = "it belongs to NUTS (`stansub reference`); stansub's own proposals adapt by themselves"
_WITHOUT = {
    "iter": _ITERATIONS,
    "iterations": _ITERATIONS,
    "data": "write the data after the program, as in `stansub sample MODEL.stan DATA.json`",
    "file": "write the program and its data without an option, as in `stansub sample MODEL.stan DATA.json`",
    "output-file": "use --output FILE.nc",
    "output-dir": "use --output FOLDER/FILE.nc",
    "refresh": "stansub shows progress by itself; --quiet hides it",
} | dict.fromkeys(["adapt-delta", "max-treedepth", "max-depth", "stepsize", "step-size", "metric"], _ADAPTED)


def hint(flag: str, options: Collection[str]) -> str:
    """Return what to use instead of a flag such as ``--num_samples``; empty if it is of no known tool.

    ``options`` are the names of those that the command has.
    """
    word = flag.lstrip("-").replace("_", "-").lower()
    for name, words in _INSTEAD.items():
        if name in options and word in words.split():
            return f"use `{name}`"
    return _WITHOUT.get(word, "") if "iter_sampling" in options else ""
