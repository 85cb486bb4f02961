"""Checkpoints: a run in a file while it goes on, so that one that was killed can go on where it was.

The file is an SQLite database. Each checkpoint is one transaction, in which what was drawn since the one before is
added: whenever the process dies, the file holds the last whole one, and it can be read meanwhile.
"""

from __future__ import annotations

import io
import pickle
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stansub import clock
from stansub.errors import InputError
from stansub.kernels.base import Records
from stansub.output import files
from stansub.run.chain import Chain, Phase
from stansub.run.prepare import Prepared, Setup
from stansub.run.stages import Meetings
from stansub.stan.data import Data
from stansub.stan.source import Source

_FORMAT = "stansub checkpoint 1"
_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value BLOB);
CREATE TABLE IF NOT EXISTS chains (number INTEGER PRIMARY KEY, state BLOB);
CREATE TABLE IF NOT EXISTS records (number INTEGER, phase TEXT, start INTEGER, rows BLOB);
"""
_OWNER = "SELECT value FROM facts WHERE name = 'owner'"
_PHASES = ("warmup", "sampling")
# What pickle raises for functions and other values that it does not take.
_UNPICKLABLE = (pickle.PicklingError, TypeError, AttributeError)


class _TakenOverError(Exception):
    """Another run writes the file now."""


class Kept(NamedTuple):
    """One chain of a checkpoint.

    Attributes
    ----------
    state : bytes
        Of `Chain.save`.
    warmup, sampling : Records or None
        What was kept; None for nothing.
    """

    state: bytes
    warmup: Records | None
    sampling: Records | None


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds.

    Attributes
    ----------
    setup : Setup
        Before the chains met.
    meetings : object
        Of `Meetings.save`; None for a run without.
    chains : dict of int to Kept
    block_size : int
    evaluator : str
    model_hash, data_hash : str
        Of the program and the data.
    source : Source
        The program.
    data : str or Data
        The file of the data, or what was given in its place.
    seconds : float
        For which chains have run.
    finished : bool
        Whether all chains have come to their end.
    """

    setup: Setup
    meetings: Any
    chains: dict[int, Kept]
    block_size: int
    evaluator: str
    model_hash: str
    data_hash: str
    source: Source
    data: str | Data
    seconds: float
    finished: bool


def read(path: Path) -> Checkpoint | None:
    """What there is of a run; None where nothing was kept yet.

    Raises
    ------
    InputError
        When the file is no checkpoint.
    """
    target, there = files.locate(path)
    files.check_regular(path, there)
    if there is None or there.st_size == 0:
        return None
    try:
        with _connected(target) as database:
            database.execute("BEGIN")  # all of one checkpoint, while the run may be writing the next
            facts = dict(database.execute("SELECT name, value FROM facts"))
            if not facts:
                return None
            if facts.get("format") != _FORMAT:
                raise InputError(f"{path} is not a checkpoint of this version of stansub")
            chains = {
                number: Kept(state, *(_records(database, number, phase) for phase in _PHASES))
                for number, state in database.execute("SELECT number, state FROM chains")
            }
    except sqlite3.DatabaseError as error:
        raise InputError(f"{path} is not a checkpoint: {error}") from error
    values = {name: pickle.loads(value) for name, value in facts.items() if name not in ("format", "owner")}
    return Checkpoint(chains=chains, **values) if chains else None


class Keeper:
    """Writes checkpoints of a run.

    Parameters
    ----------
    path : Path
    every : float
        Seconds between two checkpoints.
    prepared : Prepared
    chains : sequence of Chain
    meetings : Meetings or None
    seconds : float
        For which the chains have run before.
    on_failure : callable
        Called, once, with the reason why the file cannot be written; sampling goes on.
    """

    def __init__(
        self,
        path: Path,
        every: float,
        prepared: Prepared,
        chains: Sequence[Chain],
        meetings: Meetings | None,
        *,
        seconds: float = 0.0,
        on_failure: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._path, self._every, self._prepared = path, every, prepared
        self._chains, self._meetings, self._on_failure = chains, meetings, on_failure
        self._began = clock.now() - seconds
        self._due = clock.now() + every
        self._saved: dict[int, tuple[bytes, int, int]] = {}
        # Chains that have come to the end of a stage, as they were saved there.
        self._resting: set[int] = set()
        self._rows = {(number, phase): 0 for number in range(len(chains)) for phase in _PHASES}
        self._new, self._failed = True, False
        # Of two runs that go on from one file only the later one writes it any more.
        self._token, self._claimed = secrets.token_hex(8), False

    def continue_from(self) -> None:
        """What the chains have now stands in the file already."""
        self._new = False
        self._rows = {
            (number, phase): getattr(chain, phase).n_kept
            for number, chain in enumerate(self._chains)
            for phase in _PHASES
        }

    def between(self, number: int, more: bool, living: Sequence[int]) -> None:
        """Save a chain that stands still, if it is time; write the file when all that live are saved.

        A chain that has nothing more to do in this stage is saved in any case: it does not come here again.
        """
        if more and clock.now() < self._due:
            return
        self._save(number)
        if not more:
            self._resting.add(number)
        if clock.now() >= self._due and set(living) <= set(self._saved) | self._resting:
            self.write()

    def met(self) -> None:
        """The chains have met: what was saved of them before no longer fits together."""
        self._saved.clear()
        self._resting.clear()

    def finish(self, living: Sequence[int]) -> None:
        """Write the last checkpoint."""
        for number in living:
            self._save(number)
        self.write()

    def write(self) -> None:
        """Write what is saved, in one transaction."""
        self._due = clock.now() + self._every
        saved, self._saved = self._saved, {}
        if self._failed or not saved:
            return
        try:
            if self._new:
                self._path.unlink(missing_ok=True)
            with _connected(self._path) as database:
                if self._new:
                    database.executescript(_TABLES)
                with database:
                    self._write(database, saved)
            self._new, self._claimed = False, True
        except (OSError, sqlite3.Error, _TakenOverError, *_UNPICKLABLE) as error:
            self._fail(str(error))

    def _save(self, number: int) -> None:
        chain = self._chains[number]
        if self._failed:
            return
        try:
            self._saved[number] = (chain.save(), chain.warmup.n_kept, chain.sampling.n_kept)
        except _UNPICKLABLE as error:
            self._fail(str(error))

    def _fail(self, reason: str) -> None:
        self._failed = True
        self._on_failure(f"{self._path}: {reason}")

    def _write(self, database: sqlite3.Connection, saved: dict[int, tuple[bytes, int, int]]) -> None:
        put = "INSERT OR REPLACE INTO facts VALUES (?, ?)"
        database.execute("BEGIN IMMEDIATE")
        if self._claimed and database.execute(_OWNER).fetchone() != (self._token,):
            raise _TakenOverError("another run goes on from there")
        database.execute(put, ("owner", self._token))
        if self._new:
            database.execute(put, ("format", _FORMAT))
            for name, value in _unchanging(self._prepared).items():
                database.execute(put, (name, pickle.dumps(value)))
        changing = {
            "setup": self._prepared.setup,
            "meetings": self._meetings.save() if self._meetings is not None else None,
            "seconds": clock.now() - self._began,
            "finished": all(chain.done for chain in self._chains),
        }
        for name, value in changing.items():
            database.execute(put, (name, pickle.dumps(value)))
        for number, (state, *n_kept) in saved.items():
            database.execute("INSERT OR REPLACE INTO chains VALUES (?, ?)", (number, state))
            for phase, end in zip(_PHASES, n_kept, strict=True):
                self._append(database, number, phase, end)

    def _append(self, database: sqlite3.Connection, number: int, phase: str, end: int) -> None:
        start, kept = self._rows[number, phase], getattr(self._chains[number], phase)
        if not self._claimed:  # what another run has added since this one went on from there
            database.execute(
                "DELETE FROM records WHERE number = ? AND phase = ? AND start >= ?", (number, phase, start)
            )
        if end > start:
            rows = _packed(kept, start, end)
            database.execute("INSERT INTO records VALUES (?, ?, ?, ?)", (number, phase, start, rows))
            self._rows[number, phase] = end


def check_target(path: Path, *, overwrite: bool = False) -> None:
    """Make sure that a run may be kept in a file: nothing but checkpoints is ever replaced.

    Parameters
    ----------
    overwrite : bool
        Whether a run that stands there may be lost.

    Raises
    ------
    InputError
        Where something else than a checkpoint stands, or a run that has not come to its end.
    """
    target, there = files.locate(path)
    files.check_regular(path, there)
    if there is None or there.st_size == 0:
        return
    if not _is_checkpoint(target):
        raise InputError(f"{path} is not a checkpoint, and is left as it is; choose another name")
    if overwrite:
        return
    found = read(target)
    if found is not None and not found.finished:
        raise InputError(
            f"{path} holds a run that has not come to its end: go on with it (`resume={path}`), or delete it"
        )


def _is_checkpoint(path: Path) -> bool:
    """Whether a file is one of any version, or the beginning of one."""
    try:
        with _connected(path) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            return tables <= {"facts", "chains", "records"}
    except sqlite3.DatabaseError:
        return False


def check_same(found: Checkpoint, path: Path, *, model_hash: str, data_hash: str) -> None:
    """Raise InputError unless a checkpoint is of this program and these data."""
    for what, now, before in (
        ("another program", model_hash, found.model_hash),
        ("other data", data_hash, found.data_hash),
    ):
        if now != before:
            raise InputError(f"{path} is of {what}: a run goes on with the same program and data only")


def _unchanging(prepared: Prepared) -> dict[str, Any]:
    posterior = prepared.posterior
    return {
        "block_size": posterior.blocks.size,
        "evaluator": type(posterior.population).__name__.lower(),
        "model_hash": posterior.model_hash,
        "data_hash": posterior.values.digest(),
        "source": Source(posterior.name, posterior.program.code, posterior.program),
        "data": prepared.data_file or posterior.values,
    }


@contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    database = sqlite3.connect(path, timeout=20)
    try:
        yield database
    finally:
        database.close()


def _packed(phase: Phase, start: int, end: int) -> bytes:
    records, stream = phase.rows(start, end), io.BytesIO()
    columns: dict[str, Any] = {f"stat {name}": one for name, one in records.stats.items()}
    np.savez(stream, theta=records.theta, **columns)
    return stream.getvalue()


def _records(database: sqlite3.Connection, number: int, phase: str) -> Records | None:
    query = "SELECT rows FROM records WHERE number = ? AND phase = ? ORDER BY start"
    parts = []
    for (rows,) in database.execute(query, (number, phase)):
        with np.load(io.BytesIO(rows)) as arrays:
            parts.append({name: arrays[name] for name in arrays.files})
    if not parts:
        return None
    together = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    theta = together.pop("theta")
    return Records(theta, {name.removeprefix("stat "): one for name, one in together.items()})
