"""Checkpoints: files that hold a running run, from which a killed run resumes.

A file holds numbers, text, arrays and values of a closed list of types (`stansub.run.checkpoint_types`), so reading it
runs no code. Functions, and other values that only the user's program can make, must be passed again when the run
resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stansub import clock
from stansub.codec import Encoded, Foreign, MalformedError, NotKeptError
from stansub.errors import InputError
from stansub.kernels.base import Records
from stansub.output import files
from stansub.run import store
from stansub.run.chain import Chain, Phase
from stansub.run.checkpoint_types import CODEC
from stansub.run.config import SampleConfig, declared
from stansub.run.cross_chain import CrossChainAdaptation
from stansub.run.prepare import Prepared
from stansub.run.state import AdaptationState, Facts, Options
from stansub.stan import syntax
from stansub.stan.data.data import Data, Raw
from stansub.stan.data.sources import DataSources
from stansub.stan.source import Source

_PHASES = ("warmup", "sampling")
# Bytes of rows in memory after which the rows are written to the file and released.
_ROWS_BYTES = 1 << 26


@dataclass(frozen=True)
class StoredRows:
    """Rows in a file; calling it reads them."""

    encoded: Encoded

    def __call__(self) -> Records:
        columns = CODEC.decode(self.encoded, hint=dict[str, np.ndarray])
        if "theta" not in columns:
            raise MalformedError("there are records without positions")
        return Records.of(columns)


class SavedChain(NamedTuple):
    """One chain of a checkpoint."""

    state: Encoded
    """Result of `Chain.save`."""
    warmup: Sequence[StoredRows]
    sampling: Sequence[StoredRows]
    """Rows kept."""


@dataclass(frozen=True)
class Checkpoint:
    """Content of a checkpoint file."""

    path: Path
    options: Options
    chains: dict[int, SavedChain]
    seconds: float
    """Time for which the chains have run."""
    finished: bool
    """Whether all chains have finished."""
    _facts: Encoded
    _adaptation: Encoded | None

    def config(self) -> SampleConfig:
        """Return the options of the run.

        Raises
        ------
        InputError
            If some of them were values that no file can hold.
        """
        record, values = self.options.record, self.options.values
        if missing := [name for name in record if name not in values]:
            raise InputError(
                f"{self.path} belongs to a run with a custom `{missing[0]}`, which the file does not contain: resume "
                "the run from Python and pass it again"
            )
        with undamaged(self.path):
            try:
                return SampleConfig(**values)
            except Exception as error:  # whatever the error's type, the file holds something that no run writes
                raise MalformedError(f"its options: {error}") from error

    def facts(self, config: SampleConfig) -> Facts:
        """Return what was chosen before the first step, for compatible options (see `SampleConfig.differences`)."""
        with undamaged(self.path):
            facts: Facts = CODEC.decode(self._facts, _rules(config), hint=Facts)
            return facts

    def adaptation(self, config: SampleConfig) -> AdaptationState | None:
        """Return the results of cross-chain adaptation; None for a run without it."""
        if self._adaptation is None:
            return None
        with undamaged(self.path):
            state: AdaptationState = CODEC.decode(self._adaptation, _rules(config), hint=AdaptationState)
            return state

    def program(self, config: SampleConfig) -> tuple[Source, DataSources | Data]:
        """Return the program of the run, with its data or their files.

        Raises
        ------
        InputError
            If they are not in the file, or are no program and data.
        """
        facts = self.facts(config)
        if not facts.code:
            raise InputError(
                f"{self.path} belongs to a posterior of Python functions, which the file does not contain: resume the "
                "run from Python and pass them again"
            )
        source = Source(facts.name, facts.code, syntax.parse(facts.code))
        if facts.data is not None:
            return source, Raw(facts.data, facts.data_source).checked(source.program.data.declarations)
        sources = DataSources.restored(facts.data_file)
        assert sources is not None  # otherwise the data are in the checkpoint
        if missing := sources.missing():
            raise InputError(f"{self.path}: the data of this run are no longer in {missing}: restore that file")
        return source, sources


@contextmanager
def undamaged(path: Path) -> Iterator[None]:
    """Raise InputError if the content of a file is invalid."""
    try:
        yield
    except MalformedError as error:
        raise store.damaged(path, str(error)) from error


def read(path: Path) -> Checkpoint:
    """Return the run in a checkpoint file.

    Raises
    ------
    InputError
        If the file is missing, is no checkpoint of this version, or is damaged.
    """
    files.check_regular(path, files.locate(path)[1])
    found = store.read(files.expanded(path))
    with undamaged(path):
        try:
            root = found.document
            options: Options = CODEC.decode(Encoded(root["options"], found.arrays), hint=Options)
            chains = {
                int(number): SavedChain(
                    Encoded(one["state"], found.arrays), *(_row_blocks(found, one[phase]) for phase in _PHASES)
                )
                for number, one in root["chains"].items()
            }
            facts, adaptation = Encoded(root["facts"], found.arrays), root["adaptation"]
            seconds, finished = float(root["seconds"]), bool(root["finished"])
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise MalformedError("its root has unexpected parts") from error
    return Checkpoint(
        path,
        options,
        chains,
        seconds,
        finished,
        facts,
        None if adaptation is None else Encoded(adaptation, found.arrays),
    )


class CheckpointWriter:
    """Writer of a run's checkpoints.

    Parameters
    ----------
    every : float
        Seconds between two checkpoints.
    seconds : float
        Time for which the chains ran before.
    on_failure : callable
        Called once, with the reason, if the file cannot be written; writing then ends.

    Attributes
    ----------
    failure : str
        Why the file could not be written; empty as long as it can.
    """

    def __init__(
        self,
        path: Path,
        every: float,
        prepared: Prepared,
        chains: Sequence[Chain],
        adaptation: CrossChainAdaptation | None,
        *,
        seconds: float = 0.0,
        on_failure: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self.path, self._every, self._prepared = path, every, prepared
        self._chains, self._adaptation, self._on_failure = chains, adaptation, on_failure
        self._began = clock.now() - seconds
        self._due = clock.now() + every
        # Chains saved since the last checkpoint, and the last saved state of each chain.
        self._saved: set[int] = set()
        self._latest: dict[int, tuple[Encoded, int, int]] = {}
        # Chains at the end of a stage, as saved there.
        self._resting: set[int] = set()
        self._row_blocks = {
            (number, phase): _RowBlocks(getattr(chain, phase))
            for number, chain in enumerate(chains)
            for phase in _PHASES
        }
        self._unchanging: dict[str, Encoded] = {}
        self._pooling: tuple[int, Encoded] | None = None
        self._store, self.failure = store.Store(path), ""

    def after_turn(self, number: int, more: bool, living: Sequence[int]) -> None:
        """Save a chain between two turns if it is time; write the file once all living chains are saved.

        A chain that has finished its stage is always saved, because it has no later turn in the stage.
        """
        due = clock.now() >= self._due or sum(one.n_bytes for one in self._row_blocks.values()) > _ROWS_BYTES
        if more and not due:
            return
        self._save(number)
        if not more:
            self._resting.add(number)
        if due and set(living) <= self._saved | self._resting:
            self.write()

    def discard_states(self) -> None:
        """Discard the states saved before adaptation, because they no longer match."""
        self._saved.clear()
        self._latest.clear()
        self._resting.clear()

    def finish(self, living: Sequence[int]) -> None:
        """Write the last checkpoint."""
        for number in living:
            self._save(number)
        self.write()

    def write(self) -> None:
        """Write the saved states."""
        self._due = clock.now() + self._every
        saved, self._saved = self._saved, set()
        if self.failure or not saved:
            return
        self._prepared.posterior.values.check_files()
        try:
            self._store.write(self._root())
            for one in self._row_blocks.values():
                one.written(self._store)
        except OSError as error:
            self._fail(error.strerror or str(error))
        except (NotKeptError, store.TakenOverError) as error:
            self._fail(str(error))

    def _save(self, number: int) -> None:
        chain = self._chains[number]
        if self.failure:
            return
        try:
            self._latest[number] = chain.save(), chain.warmup.n_kept, chain.sampling.n_kept
            self._saved.add(number)
        except NotKeptError as error:
            self._fail(f"no file can hold {error}")

    def _fail(self, reason: str) -> None:
        self.failure = f"{self.path}: {reason}"
        self._latest.clear()
        self._on_failure(self.failure)

    def _root(self) -> Encoded:
        """Return the whole content of a checkpoint."""
        arrays: dict[str, Mapping[str, bytes | memoryview]] = {}

        def placed(one: Encoded) -> Any:
            arrays.update(dict.fromkeys(one.arrays, one.arrays))
            return one.document

        if not self._unchanging:
            self._unchanging = {"options": _options(self._prepared), "facts": _facts(self._prepared)}
        root: dict[str, Any] = {name: placed(one) for name, one in self._unchanging.items()}
        root["adaptation"] = None if self._adaptation is None else placed(self._adaptation_state(self._adaptation))
        root["seconds"] = clock.now() - self._began
        root["finished"] = all(chain.done for chain in self._chains)
        root["chains"] = {
            str(number): {
                "state": placed(state),
                **{
                    phase: [placed(one) for one in self._row_blocks[number, phase].until(end)]
                    for phase, end in zip(_PHASES, ends, strict=True)
                },
            }
            for number, (state, *ends) in sorted(self._latest.items())
        }
        return Encoded(root, store.Arrays(arrays, lambda digest: arrays[digest][digest]))

    def _adaptation_state(self, adaptation: CrossChainAdaptation) -> Encoded:
        """Return the results of adaptation, which do not change until the next stage ends."""
        if self._pooling is None or self._pooling[0] != adaptation.last:
            rules = _rules(self._prepared.setup.config)
            self._pooling = adaptation.last, CODEC.encode(adaptation.save(), rules, copy=False)
        return self._pooling[1]


class _RowBlocks:
    """Rows of a phase in blocks: each full one is written once and then only the file holds it."""

    def __init__(self, phase: Phase) -> None:
        self._phase = phase
        self._fresh: dict[int, Encoded] = {}
        # Full blocks in the file.
        self._n_written = 0

    @property
    def n_bytes(self) -> int:
        """Return the bytes of the rows in memory."""
        return self._phase.kept.n_bytes

    def until(self, end: int) -> Iterator[Encoded]:
        """Yield all rows before ``end``."""
        rows = self._phase.kept
        n_full = end // rows.per_block
        for number in range(n_full):
            read = rows.reader(number)
            if not isinstance(read, StoredRows) and number not in self._fresh:
                self._fresh[number] = CODEC.encode(rows.block(number).columns, copy=False)
            yield read.encoded if isinstance(read, StoredRows) else self._fresh[number]
        if end > n_full * rows.per_block:
            yield CODEC.encode(rows.read(n_full * rows.per_block, end).columns, copy=False)

    def written(self, kept: store.Store) -> None:
        """Release the blocks that the file now holds."""
        rows = self._phase.kept
        for number in range(self._n_written, rows.n_full):
            read = rows.reader(number)
            encoded = read.encoded if isinstance(read, StoredRows) else self._fresh.pop(number, None)
            if encoded is None:  # full since it was saved
                break
            rows.store(number, StoredRows(Encoded(encoded.document, store.Arrays(encoded.arrays, kept.array))))
            self._n_written = number + 1


def check_target(path: Path, *, overwrite: bool = False) -> None:
    """Check that a run may be saved to a file: only checkpoints are ever overwritten.

    Raises
    ------
    InputError
        If the file is no checkpoint or, unless ``overwrite`` is set, holds an unfinished run.
    """
    target, there = files.locate(path)
    files.check_regular(path, there)
    if there is None or there.st_size == 0:
        return
    if store.is_database(target):
        raise InputError(
            f"{path} is an SQLite database, the checkpoint format of earlier versions, and was not changed; choose "
            "another name, or delete it"
        )
    if not store.is_store(target):
        raise InputError(f"{path} is not a checkpoint and was not changed; choose another name")
    if overwrite:
        return
    root = store.read_root(target)
    if not (isinstance(root, Mapping) and root.get("finished") is True):
        raise InputError(f"{path} contains an unfinished run: resume it (`resume={path}`), or delete it")


def check_same(facts: Facts, path: Path, *, model_hash: str, data_hash: str) -> None:
    """Raise InputError unless a checkpoint is of this program and these data."""
    for what, now, before in (
        ("another program", model_hash, facts.model_hash),
        ("other data", data_hash, facts.data_hash),
    ):
        if now != before:
            raise InputError(f"{path} belongs to {what}: resume a run with the same program and data")


def _rules(config: SampleConfig) -> Foreign:
    """Return the custom test's values for decoding; the test itself must be passed again."""
    test = config.make_test()
    given, types = CODEC.foreign(test)
    return Foreign((test, *given), types)


def _options(prepared: Prepared) -> Encoded:
    config = prepared.setup.config
    values = {}
    for one in fields(SampleConfig):
        if declared(one.name).recorded:
            value = getattr(config, one.name)
            if one.name == "executor" and not isinstance(value, str):
                value = "threads"
            try:
                CODEC.encode(kept := str(value) if isinstance(value, Path) else value)
            except NotKeptError:
                continue
            values[one.name] = kept
    return CODEC.encode(Options(config.record(), values))


def _facts(prepared: Prepared) -> Encoded:
    setup, posterior = prepared.setup, prepared.posterior
    in_file = bool(prepared.data_file) or not posterior.program.code
    facts = Facts(
        **setup.chosen(),
        block_size=posterior.blocks.size,
        evaluator=posterior.population.kind,
        model_hash=posterior.model_hash,
        data_hash=posterior.values.digest(),
        name=posterior.name,
        code=posterior.program.code,
        data_file=prepared.data_file,
        data=None if in_file else dict(posterior.values.values),
        data_source=posterior.values.source,
        points=list(posterior.points),
    )
    return CODEC.encode(facts, _rules(setup.config), copy=False)


def _row_blocks(found: Encoded, documents: Sequence[Any]) -> list[StoredRows]:
    return [StoredRows(Encoded(one, found.arrays)) for one in documents]
