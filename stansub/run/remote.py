"""Chains in other processes, to which only values are sent.

A worker reconstructs the posterior from its `PosteriorRecipe` (with the compiled libraries in the user's cache) and
reads the current setup from a file. A turn sends a chain's state to the worker and returns the next state with its
records.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from stansub.codec import Encoded, NotKeptError
from stansub.errors import InputError
from stansub.kernels.base import Records
from stansub.run import executors
from stansub.run.chain import Chain
from stansub.run.chain_factory import chain_of
from stansub.run.cross_chain import CrossChainAdaptation
from stansub.run.functions import FunctionRecipe
from stansub.run.prepare import Prepared, Setup
from stansub.stan.partitions import PartitionedData
from stansub.stan.posterior import Posterior
from stansub.stan.recipe import PosteriorRecipe
from stansub.target.functions import FunctionFactors

_opening = threading.Lock()


class RemoteChains:
    """Runs the chains of a run on the workers of an executor.

    Parameters
    ----------
    executor : Executor
        Its workers must see the files of this machine.
    folder : Path
        Folder for the files that workers read.

    Raises
    ------
    InputError
        If part of the run cannot be pickled, such as an unnamed function as proposal.
    """

    def __init__(self, executor: executors.Executor, prepared: Prepared, folder: Path) -> None:
        self.executor = executor
        self._setup, self._folder, self._number = prepared.setup, folder, 0
        self._write("posterior", _recipe(prepared.posterior))
        self.update_setup(None)

    def update_setup(self, adaptation: CrossChainAdaptation | None) -> None:
        """Send the setup after adaptation to the workers."""
        self._number += 1
        self._write(f"setup-{self._number}", self._setup.adapted(adaptation))

    def work(self, chain: Chain, number: int) -> executors.Work:
        """Return the turns of one chain with the current setup."""
        return _RemoteChain(chain, number, str(self._folder), f"setup-{self._number}")

    def _write(self, name: str, value: PosteriorRecipe | FunctionRecipe | Setup) -> None:
        try:
            (self._folder / name).write_bytes(pickle.dumps(value))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise _unsent(error) from error


@contextmanager
def remote_chains(
    executor: str | executors.Executor | None, prepared: Prepared, parallel: int
) -> Iterator[RemoteChains | None]:
    """Yield where the chains run; None for threads of this process, which also run chains of data in partitions."""
    if isinstance(prepared.posterior.values, PartitionedData):
        yield None
        return
    with executors.opened(executor, parallel) as pool:
        if pool is None:
            yield None
            return
        # Unpickling runs code. Workers read these pickles from a folder that this process just created and that only
        # this user can write to (`TemporaryDirectory` uses mode 700).
        with TemporaryDirectory(prefix="stansub-") as folder:
            try:
                yield RemoteChains(pool, prepared, Path(folder))
            finally:
                _forget()


@dataclass(frozen=True)
class _RemoteChain:
    """Turns of a chain in another process; between turns this process holds its state."""

    chain: Chain
    number: int
    folder: str
    setup: str

    def begin(self, executor: executors.Executor) -> Future[tuple[Encoded, Records, Records]]:
        """Send the chain's state to a worker."""
        return executor.submit(turn, self.folder, self.setup, self.number, _saved(self.chain))

    def end(self, result: tuple[Encoded, Records, Records]) -> bool:
        """Update the chain with the state returned."""
        state, warmup, sampling = result
        self.chain.restore(state, ([lambda: warmup], [lambda: sampling]))
        return not (self.chain.done or self.chain.is_paused)


def turn(folder: str, setup: str, number: int, state: Encoded) -> tuple[Encoded, Records, Records]:
    """Run a turn of a chain from its state; return the next state and the rows kept of warmup and of sampling."""
    with _opening:
        chain = _chain(folder, setup, number)
    chain.restore(state)
    starts = chain.warmup.n_kept, chain.sampling.n_kept
    executors.turn(chain, executors.TURN)
    return _saved(chain), chain.warmup.rows(starts[0]), chain.sampling.rows(starts[1])


def _saved(chain: Chain) -> Encoded:
    try:
        return chain.save()
    except NotKeptError as error:
        raise _unsent(error) from error


def _unsent(error: Exception) -> InputError:
    return InputError(f"these chains cannot be sent to other processes ({error}): choose `executor='threads'`")


def _recipe(posterior: Posterior) -> PosteriorRecipe | FunctionRecipe:
    factors = posterior.population
    return FunctionRecipe(factors) if isinstance(factors, FunctionFactors) else PosteriorRecipe.of(posterior)


def _forget() -> None:
    """Release what turns have opened in this process, if the executor's workers are its threads."""
    with _opening:
        for opened in (_chain, _setup, _posterior):
            opened.cache_clear()


@lru_cache(maxsize=1)
def _posterior(folder: str) -> Posterior:
    recipe: PosteriorRecipe | FunctionRecipe = pickle.loads((Path(folder) / "posterior").read_bytes())
    return recipe.make()


@lru_cache(maxsize=1)
def _setup(folder: str, name: str) -> Setup:
    _chain.cache_clear()  # chains of the previous setup
    setup: Setup = pickle.loads((Path(folder) / name).read_bytes())
    return setup


@lru_cache(maxsize=64)
def _chain(folder: str, name: str, number: int) -> Chain:
    """Return a chain with this setup, ready to receive a state."""
    posterior, setup = _posterior(folder), _setup(folder, name)
    theta, stop = np.zeros(posterior.dim), np.zeros(1, np.int32)
    return chain_of(posterior, setup, setup.ranges(posterior), theta, chain=number, stop=stop)
