"""Data in partitions, opened by threads or by dask workers: the same draws, whoever opens them."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import io
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from clocks import HANGS, set_clock, wait_until
from drawn import unconstrained
from partition_parts import PARTS, Held, N, of_a_file, of_this_process, table
from pyarrow import parquet

import stansub
from stansub import CompiledModel, DataPartitions, InputError, RunError, memory
from stansub.diagnostics import ppc
from stansub.output import inference_data
from stansub.output.record import record_of
from stansub.output.summary import details
from stansub.progress import Progress, TimeLimitError
from stansub.run import partitions
from stansub.run.config import SampleConfig
from stansub.run.executors import dask_client
from stansub.run.partitions import DaskPartitions, Partitions
from stansub.stan import partitions as stan_partitions
from stansub.stan import syntax
from stansub.stan.data.data import Data
from stansub.stan.partition_requests import BlockSum, Describe, Description, LogDensities, Sample
from stansub.stan.partitions import PartitionedData, PartitionRecipe, stamp_of
from stansub.stan.source import Source
from stansub.target import observations
from stansub.target.partitioned import Derivatives
from stansub.target.predictor_derivatives import LogLikelihood
from stansub.target.remainders import NoPredictorsError
from stansub.target.sites import Candidates, Expanded, Sums, Surveyed

PROGRAM = Path(__file__).parents[2] / "stan_models" / "logistic.stan"
OPTIONS: dict[str, Any] = {"chains": 2, "iter_warmup": 200, "iter_sampling": 2000, "seed": 3, "show_progress": False}
SHORT: dict[str, Any] = OPTIONS | {"iter_sampling": 400}
COLUMNS = {"x": ["x1", "x2", "x3"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("partitions")
    for part in range(PARTS):
        parquet.write_table(table(part), made / f"part-{part}.parquet")
    return made


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if these few rows were very many."""
    monkeypatch.setattr(partitions, "_LEAST", 0)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with dask_client("", 2) as found:
        yield found


def sources(folder: Path) -> stansub.DataSources:
    return stansub.DataSources([str(folder / "part-*.parquet")], COLUMNS)


def recipes(compiled: CompiledModel, parts: list[Any]) -> tuple[PartitionRecipe, ...]:
    code = compiled.program.code
    return tuple(
        PartitionRecipe(f"{id(parts)}-{number}", compiled.name, code, one, (), COLUMNS, 0, None, stamp_of(one))
        for number, one in enumerate(parts)
    )


def files(folder: Path) -> list[Any]:
    return sorted(folder.glob("part-*.parquet"))


def test_draws_do_not_depend_on_where_the_partitions_are(
    logistic: CompiledModel, folder: Path, many: None, client: Any
) -> None:
    here = stansub.sample(logistic, sources(folder), **SHORT)
    there = stansub.sample(logistic, sources(folder), executor=f"dask:{client.scheduler_info()['address']}", **SHORT)
    np.testing.assert_array_equal(unconstrained(here), unconstrained(there))
    facts = inference_data.attrs(here)
    assert (facts["n_observations"], facts["settings"]["evaluator"], facts["guarantee"]) == (
        N,
        "partitions",
        "exact by proved bounds",
    )
    assert facts["data_hash"] == inference_data.attrs(there)["data_hash"]
    for found in map(inference_data.attrs, (here, there)):
        for chain in range(OPTIONS["chains"]):
            assert found["n_waits"][chain] + found["warmup_n_waits"][chain] >= 1
            waited = found["wait_time"][chain] + found["warmup_wait_time"][chain]
            assert 0 < waited < found["sampling_time"][chain] + found["warmup_time"][chain]
        lines = dict(line for part in details(record_of(there), found) for line in part)
        assert "batches of candidates" in lines["Waits"]


@pytest.mark.slow
def test_a_reduce_sum_has_the_draws_of_a_statement(logistic: CompiledModel, folder: Path, many: None) -> None:
    reduced = stansub.compile_model(PROGRAM.with_stem("logistic_reduce_sum"))
    one, other = (stansub.sample(model, sources(folder), **SHORT) for model in (logistic, reduced))
    assert [inference_data.attrs(found)["settings"]["evaluator"] for found in (one, other)] == ["partitions"] * 2
    np.testing.assert_allclose(unconstrained(one), unconstrained(other), rtol=1e-8)


def test_draws_are_those_of_all_rows_in_memory(
    logistic: CompiledModel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def draws(source: Any) -> Any:
        return stansub.sample(logistic, source, **OPTIONS)

    together = draws(sources(folder))
    assert inference_data.attrs(together)["settings"]["evaluator"] == "instances"
    monkeypatch.setattr(partitions, "_LEAST", 0)
    apart = draws(sources(folder))
    assert inference_data.attrs(apart)["data_hash"] == inference_data.attrs(together)["data_hash"]
    without = draws(stansub.DataSources([DataPartitions(files(folder)[1:])], COLUMNS))

    def z(one: Any) -> float:
        """Largest difference of means from those of all rows, in standard errors of a quarter of the draws."""
        values, expected = unconstrained(one).reshape(-1, 4), unconstrained(together).reshape(-1, 4)
        return float(np.abs((values.mean(0) - expected.mean(0)) / expected.std(0)).max() * np.sqrt(len(values) / 8))

    assert z(apart) < 5
    assert z(without) > 10, "a partition less is another posterior"


class Impatient(Progress):
    """Ends the first wait, once it has noted what for."""

    def __init__(self, until: Path, *, here: bool) -> None:
        super().__init__()
        self.seen, self._until, self._here = "", until, here

    def check(self) -> None:
        self.seen = self.waits
        if self._here:  # threads of this process end with their requests
            self._until.touch()
        raise TimeLimitError("the time is up")


@pytest.mark.parametrize("here", [True, False], ids=["threads", "dask"])
def test_waiting_ends_when_the_run_does(
    logistic: CompiledModel, folder: Path, client: Any, tmp_path: Path, here: bool
) -> None:
    until = tmp_path / "file"
    made, progress = recipes(logistic, files(folder)), Impatient(until, here=here)
    holders = Partitions(made, progress=progress) if here else DaskPartitions(made, progress=progress, client=client)
    try:
        with pytest.raises(TimeLimitError, match="the time is up"):
            holders.answers({0: Held(until), 1: Held(until)})
        assert progress.seen == "waiting for 2 of 2 partitions"
        assert not progress.waits
    finally:
        until.touch()
    holders.progress = Progress()
    assert holders.answers({1: Held(until)}) == ["answered"]


def test_the_time_limit_says_what_was_waited_for() -> None:
    with set_clock() as clock:
        progress = Progress(max_time=5)
        progress("Opening 4 partitions: part-*.parquet")
        progress.wait_for("waiting for 3 of 4 partitions")
        clock.advance(6)
        with pytest.raises(TimeLimitError, match=r"'Opening 4 partitions: .*, waiting for 3 of 4 partitions'"):
            progress.check()


def test_an_interrupt_ends_a_wait_for_candidates(
    logistic: CompiledModel, folder: Path, many: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The draws before are kept, and the run resumes as if it had not been interrupted."""
    monkeypatch.setattr(observations, "_MOST_BATCH", 4)
    kept, options = tmp_path / "run.checkpoint", SHORT | {"chains": 1}
    answers, n_waits, last = Partitions.answers, 0, -1

    def held(self: Partitions, requests: Any) -> Any:
        nonlocal n_waits
        asked = getattr(next(iter(requests.values())), "request", None)
        if isinstance(asked, Candidates) and threading.current_thread() is not threading.main_thread():
            n_waits += 1
            if n_waits == last:
                os.kill(os.getpid(), signal.SIGINT)
                wait_until(lambda: self.progress.check())
        return answers(self, requests)

    monkeypatch.setattr(Partitions, "answers", held)
    whole = stansub.sample(logistic, sources(folder), **options)
    last, n_waits = 2 * n_waits // 3, 0  # warmup is a tenth of the steps
    found = stansub.sample(logistic, sources(folder), checkpoint=kept, **options)
    monkeypatch.setattr(Partitions, "answers", answers)
    assert "interrupted" in inference_data.attrs(found)["stopped"]
    n_draws = unconstrained(found).shape[1]
    assert 0 < n_draws < SHORT["iter_sampling"]
    np.testing.assert_array_equal(unconstrained(found), unconstrained(whole)[:, :n_draws])
    resumed = stansub.sample(logistic, sources(folder), resume=kept, **options)
    np.testing.assert_array_equal(unconstrained(resumed), unconstrained(whole))
    for name in ("n_obs_used", "n_candidates", "n_obs_evaluated"):
        assert (np.array(inference_data.attrs(resumed)[name]) > 0).all()
        assert inference_data.attrs(resumed)[name] == inference_data.attrs(whole)[name]


def test_without_workers_nobody_waits(
    logistic: CompiledModel, folder: Path, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if all workers died while they are asked."""
    there, until = DaskPartitions(recipes(logistic, files(folder)), client=client), tmp_path / "file"
    there._homes = dict.fromkeys(range(PARTS), "tcp://127.0.0.1:1")
    monkeypatch.setattr(there, "_settle", lambda numbers: None)
    monkeypatch.setattr(partitions, "_PATIENCE", 0.01)
    monkeypatch.setattr(client, "nthreads", dict)
    try:
        with pytest.raises(RunError, match="all dask workers are gone"):
            there.answers(dict.fromkeys(range(PARTS), Held(until)))
    finally:
        until.touch()


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced(logistic: CompiledModel, folder: Path) -> None:
    made = recipes(logistic, files(folder))
    request = LogDensities((np.zeros(4), np.full(4, 0.1)))
    asked = dict.fromkeys(range(PARTS), request)
    here = Partitions(made)
    expected = here.answers(asked)
    with dask_client("", 2) as client:  # of its own, because dask does not always restart the worker
        there = DaskPartitions(made, client=client)
        assert there.answers(asked) == expected
        before = dict(there._homes)
        address, pid = next(iter(client.run(os.getpid).items()))
        assert address in before.values()
        os.kill(pid, signal.SIGKILL)
        assert there.answers(asked) == expected, "each partition has answered once"
    here.close()


def test_a_cluster_that_fails_while_it_closes_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed, closed = pytest.importorskip("distributed"), []

    class Cluster(contextlib.ExitStack):
        def __init__(self, **options: Any) -> None:
            super().__init__()
            self.callback(self.close)

        def close(self) -> None:
            closed.append(True)
            raise KeyError("tcp://127.0.0.1:1")

    class Client(contextlib.nullcontext[Any]):
        def __init__(self, cluster: Any, timeout: float) -> None:
            super().__init__(self)

        def run(self, function: Any) -> None:
            pass

    monkeypatch.setattr(distributed, "LocalCluster", Cluster)
    monkeypatch.setattr(distributed, "Client", Client)
    with dask_client("", 2) as found:
        assert isinstance(found, Client)
    assert closed == [True]


def test_a_partition_that_is_closed_while_it_opens_is_not_kept() -> None:
    posterior: Any = SimpleNamespace(values=SimpleNamespace(nbytes=1))
    kept = partitions._Open()

    class Recipe:
        def open(self, proved: Any) -> tuple[Any, Any]:
            kept.close([recipe])
            return posterior, object()

    recipe: Any = Recipe()
    assert kept.get(recipe, "") is posterior
    assert not kept._kept
    assert not kept._proved


def test_partitions_without_room_are_opened_again_without_a_proof(
    logistic: CompiledModel, folder: Path, many: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = stansub.sample(logistic, sources(folder), **SHORT)
    proofs, opened, room = [], [], partitions._Open._has_room
    own_proof, own_open = CompiledModel.with_data, PartitionRecipe.open

    def with_data(self: CompiledModel, *arguments: Any, **options: Any) -> Any:
        proofs.append(self.name)
        return own_proof(self, *arguments, **options)

    def one_open(self: PartitionRecipe, known: Any = None) -> Any:
        opened.append(self.key)
        return own_open(self, known)

    monkeypatch.setattr(CompiledModel, "with_data", with_data)
    monkeypatch.setattr(PartitionRecipe, "open", one_open)
    n_others = len(partitions._open._kept)
    monkeypatch.setattr(partitions._Open, "_has_room", lambda self, n_bytes: len(self._kept) <= n_others)
    apart = stansub.sample(logistic, sources(folder), **SHORT)
    np.testing.assert_array_equal(unconstrained(apart), unconstrained(whole))
    assert len(proofs) == PARTS + 1  # and of the sample
    counts = sorted(opened.count(key) for key in set(opened))
    assert counts[0] == 1  # the one that stays open
    assert counts[1] > 5
    # There is room if what is open takes at most a third of what was free without it.
    monkeypatch.setattr(memory, "room", lambda: memory.Room(100, ""))
    some = partitions._Open()
    assert (room(some, 49), room(some, 51)) == (True, False)


def test_waiting_leaves_nothing_behind(client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes over many partitions are polled for hours."""
    monkeypatch.setattr(partitions, "_PAUSES", (0.01, 0.01))
    futures = [client.submit(Held(tmp_path / "go").answer, None, pure=False) for _ in range(20)]
    waiting = DaskPartitions((), client=client)

    async def n_tasks() -> int:
        return len(asyncio.all_tasks())

    before = client.sync(n_tasks)
    for _ in range(5):
        assert waiting._n_left(futures) == len(futures)
    assert client.sync(n_tasks) < before + len(futures)
    (tmp_path / "go").touch()
    wait_until(lambda: not waiting._n_left(futures))
    assert client.gather(futures) == ["answered"] * len(futures)


def test_files_are_written_without_asking_the_cluster(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Xarray would take its locks from the scheduler, which may be busy or gone."""
    draws = inference_data.build(posterior={"a": np.zeros((2, 3000))}, sample_stats={}, attrs={})
    monkeypatch.setattr(importlib.import_module("distributed"), "Lock", lambda *_: pytest.fail("asked for a lock"))
    inference_data.write_groups(draws, io.BytesIO())


def test_rows_that_change_between_two_passes_are_refused(logistic: CompiledModel, tmp_path: Path) -> None:
    parquet.write_table(table(0), tmp_path / "part-0.parquet")
    made = [partial(of_a_file, str(tmp_path / "part-0.parquet"))]
    (recipe,) = recipes(logistic, made)
    posterior, known = recipe.open()
    assert known is not None
    again, _ = recipe.open(known)
    at = np.array([0.1, 0.2, -0.1, 0.3])
    assert again.full.log_density(at) == posterior.full.log_density(at)
    assert again.predictors().gradient_at(at)[0] == posterior.predictors().gradient_at(at)[0]
    parquet.write_table(table(0, seed=2), tmp_path / "part-0.parquet")
    with pytest.raises(InputError, match="its rows are not those that were read at first; restore them"):
        recipe.open(known)


def test_rows_are_digested_once_each_time_that_they_are_read(
    logistic: CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, digested = Data.digest_along, list[int]()

    def counted(values: Data, sizes: Iterable[str]) -> str:
        digested.append(len(digested))
        return digest(values, sizes)

    monkeypatch.setattr(Data, "digest_along", counted)
    (recipe,) = recipes(logistic, [partial(of_this_process, 0)])
    posterior, known = recipe.open()
    description = Describe().answer(posterior)
    assert known is not None
    assert (description.digest, len(digested)) == (known.digest, 1)
    again, _ = recipe.open(known)
    assert Describe().answer(again).digest == known.digest
    assert len(digested) == 2


@pytest.mark.slow
def test_a_worker_with_other_rows_is_refused(logistic: CompiledModel, client: Any) -> None:
    made = recipes(logistic, [partial(of_this_process, 0), partial(of_this_process, 1)])
    there = DaskPartitions(made, client=client)
    described = there.answers(dict.fromkeys(range(2), Describe()))
    there.digests = tuple(one.digest for one in described)
    assert len(there.answers(dict.fromkeys(range(2), Describe()))) == 2
    client.wait_for_workers(2, timeout=HANGS)
    workers = set(client.nthreads())
    for number, home in there._homes.items():  # as if the first had died
        there._homes[number] = next(iter(workers - {home}))
    with pytest.raises(InputError, match="this worker has other rows than the one that opened them first") as error:
        there.answers(dict.fromkeys(range(2), Describe()))
    assert "\n" not in str(error.value)


def test_a_worker_with_another_file_is_refused(logistic: CompiledModel, tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    parquet.write_table(table(0), path)
    made = recipes(logistic, [path])
    parquet.write_table(table(1), path)
    with pytest.raises(InputError, match=r"part.parquet: this worker has another file than the process that started"):
        Partitions(made).answers({0: Describe()})


def test_partitions_that_do_not_fit_together(logistic: CompiledModel, folder: Path, many: None) -> None:
    other = parquet.read_table(files(folder)[0]).set_column(1, "x1", pa.array(["a"] * (N // PARTS)))
    parquet.write_table(other, folder / "text.parquet")
    with pytest.raises(InputError, match="x1"):
        stansub.sample(
            logistic,
            stansub.DataSources([DataPartitions([*files(folder), folder / "text.parquet"])], COLUMNS),
            **OPTIONS,
        )


def test_tests_that_draw_blocks_have_all_rows_in_one_process(folder: Path, many: None) -> None:
    draws = stansub.sample(PROGRAM, sources(folder), test="austerity", **OPTIONS | {"iter_sampling": 100})
    assert inference_data.attrs(draws)["settings"]["evaluator"] == "instances"


def test_likelihoods_without_predictors_have_all_rows_in_one_process(
    folder: Path, many: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object, **__: object) -> None:
        raise NoPredictorsError("nothing is known of it")

    monkeypatch.setattr(Describe, "answer", none)
    draws = stansub.sample(PROGRAM, sources(folder), **OPTIONS | {"iter_sampling": 100})
    assert inference_data.attrs(draws)["settings"]["evaluator"] == "instances"


def test_partitions_that_are_not_used_are_closed(folder: Path, many: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(self: Describe, posterior: Any, *, threads: int) -> None:
        raise NoPredictorsError("nothing is known of it")

    monkeypatch.setattr(Describe, "answer", none)
    before = set(partitions._open._opening)
    with partitions.opened(PROGRAM, sources(folder), SampleConfig(**SHORT), Progress()) as data:
        assert isinstance(data, stansub.DataSources)
        assert set(partitions._open._opening) == before


def test_errors_of_a_run_are_not_those_of_opening_its_partitions(folder: Path, many: None) -> None:
    def fail() -> None:
        with partitions.opened(PROGRAM, sources(folder), SampleConfig(**SHORT), Progress()) as data:
            assert isinstance(data, PartitionedData)
            raise NoPredictorsError("found later")

    with pytest.raises(NoPredictorsError, match="found later"):
        fail()


def test_a_run_resumes_from_its_partitions(logistic: CompiledModel, folder: Path, many: None, tmp_path: Path) -> None:
    whole = stansub.sample(PROGRAM, sources(folder), **SHORT)
    kept = tmp_path / "run.checkpoint"
    stansub.sample(PROGRAM, sources(folder), checkpoint=kept, **SHORT)
    again = stansub.read_checkpoint(kept)
    np.testing.assert_array_equal(unconstrained(again), unconstrained(whole))


# Times that each row stands in for, so that there are more than 2^31.
TIMES = 1 << 20


def answer_for_many(recipe: PartitionRecipe, digest: str, request: Any, threads: int = 1) -> Any:
    """As if each row of a partition occurred many times in a row."""
    asked = getattr(request, "request", request)
    if isinstance(request, Sample):
        request = Sample(request.rows // TIMES)
    elif isinstance(asked, Candidates):
        request = replace(request, request=replace(asked, places=asked.places // TIMES))
    found = own_answer(recipe, digest, request, threads)
    if isinstance(found, Description):
        assert found.constant is not None
        return found._replace(n_observations=TIMES * found.n_observations, constant=TIMES * found.constant)
    if isinstance(found, Expanded):
        sums = Sums(*(TIMES * part for part in found.sums[:3]), found.sums.ratios)
        return Expanded(sums, found.keys, TIMES * found.counts)
    if isinstance(found, Surveyed):
        return Surveyed({order: TIMES * bound for order, bound in found.bounds.items()}, {})
    if isinstance(request, LogDensities):
        evaluator = partitions._open.get(recipe, digest).population.evaluator()
        shared = [evaluator.global_log_density(theta) for theta in request.points]
        return [(TIMES * (value - own) + own, text) for (value, text), own in zip(found, shared, strict=True)]
    if isinstance(asked, Derivatives):
        return tuple(TIMES * one for one in found)
    return TIMES * found if isinstance(asked, LogLikelihood | BlockSum) else found


own_answer = partitions.answer


def test_more_rows_than_32_bits_can_number(
    logistic: CompiledModel, folder: Path, many: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.concat_tables(table(part) for part in range(PARTS))
    predictors = logistic.with_data(stansub.DataSources([rows], COLUMNS)).predictors()
    mode = np.zeros(4)
    for _ in range(20):
        mode = mode - np.linalg.solve(predictors.hessian_at(mode), predictors.gradient_at(mode)[1])
    sds = np.sqrt(np.diag(np.linalg.inv(-TIMES * predictors.hessian_at(mode))))
    kinds: list[type] = []

    def noted(recipe: PartitionRecipe, digest: str, request: Any, threads: int = 1) -> Any:
        kinds.append(type(getattr(request, "request", request)))
        return answer_for_many(recipe, digest, request, threads)

    monkeypatch.setattr(partitions, "answer", noted)
    monkeypatch.setattr(stan_partitions, "_PILOT", N)
    draws = stansub.sample(logistic, sources(folder), **OPTIONS)
    facts = inference_data.attrs(draws)
    assert (facts["n_observations"], facts["guarantee"]) == (N * TIMES, "exact by proved bounds")
    assert N * TIMES > 2**31
    found = unconstrained(draws).reshape(-1, 4)
    # the posterior is normal about the likelihood's mode, to a few millionths of an sd
    assert np.abs((found.mean(0) - mode) / sds).max() < 5 / np.sqrt(len(found) / 8)
    np.testing.assert_allclose(found.std(0), sds, rtol=0.15)
    assert "R-hat" not in str(draws.attrs["warnings"])
    # Newton steps from the mode of the sample; the starts of all chains together
    assert kinds.count(Derivatives) <= 6 * PARTS
    assert kinds.count(LogDensities) <= PARTS
    assert BlockSum not in kinds


def test_loo_of_partitions_is_that_of_memory(
    logistic: CompiledModel, folder: Path, many: None, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = stansub.sample(logistic, sources(folder), **SHORT)
    apart = stansub.loo(draws, observations=60)
    there = stansub.loo(draws, observations=60, executor=f"dask:{client.scheduler_info()['address']}")
    attrs = inference_data.attrs

    def as_in_memory(idata: Any) -> dict[str, Any]:
        facts = attrs(idata)
        return facts | {"settings": facts["settings"] | {"evaluator": "instances"}}

    monkeypatch.setattr(inference_data, "attrs", as_in_memory)
    together = stansub.loo(draws, observations=60)
    np.testing.assert_array_equal(apart.rows, together.rows)
    for one in (apart, there):
        for name in ("elpd", "se", "subsampling_se", "p", "elpd_i", "p_i"):
            np.testing.assert_allclose(getattr(one, name), getattr(together, name), rtol=1e-9, err_msg=name)
        np.testing.assert_allclose(one.sums.chosen, together.sums.chosen, rtol=1e-9)
        assert one.n_data_points == N
    assert apart.columns == there.columns
    compared = stansub.loo_compare({"apart": apart, "there": there})
    assert compared.elpd_diff.abs().max() == 0
    with pytest.raises(InputError, match="the data of only one are in partitions"):
        stansub.loo_compare({"apart": apart, "together": together})
    with pytest.raises(InputError, match="these draws are not of data in partitions: leave out `executor`"):
        stansub.loo(draws, executor="dask")


def test_rows_for_predictions_are_those_of_memory(logistic: CompiledModel, folder: Path) -> None:
    source, declarations = sources(folder), logistic.program.data.declarations
    program = Source("logistic", logistic.program.code, logistic.program)
    at, chosen = np.array([0.1, 0.2, -0.1, 0.3]), np.array([3, 999, 1000, 2500, 3999])
    whole = logistic.with_data(source)
    with partitions.reopened(program, source, seed=1, observations=None, executor=None, log=Progress()) as values:
        apart = values.posterior(logistic, seed=1, observations=None, log=Progress())
        found, model = ppc._subset(apart, chosen, at)
        expected, in_memory = ppc._subset(whole, chosen, at)
    for name, value in expected.values.items():
        np.testing.assert_array_equal(found.values[name], value)
    assert model.log_density(at) == in_memory.log_density(at)
    assert {one.name for one in declarations} == set(found.values)


def test_log_likelihoods_of_partitions_add_up(logistic: CompiledModel, folder: Path) -> None:
    """Those of the programs of each partition, and of the only block of all of them."""
    source, at = sources(folder), np.array([0.1, 0.2, -0.1, 0.3])
    program = Source("logistic", logistic.program.code, logistic.program)
    with partitions.reopened(program, source, seed=1, observations=None, executor=None, log=Progress()) as values:
        parts = values.holders.answers(dict.fromkeys(range(PARTS), BlockSum(at)))
        all_rows = values.posterior(logistic, seed=1, observations=None, log=Progress()).population.evaluator()
        together = all_rows.block_log_lik(at)
    rows = [table(part).to_pandas() for part in range(PARTS)]
    eta = [at[0] + one[COLUMNS["x"]].to_numpy() @ at[1:] for one in rows]
    expected = [one["y"] @ mean - np.logaddexp(0, mean).sum() for one, mean in zip(rows, eta, strict=True)]
    np.testing.assert_allclose(list(parts), expected)
    np.testing.assert_allclose(together, [sum(expected)])


@pytest.mark.slow
def test_cuts_of_partitions_are_proved_near_the_inits(folder: Path, many: None, tmp_path: Path) -> None:
    """The log density is finite at intercepts from 25 to 35 alone, far from 0."""
    program = tmp_path / "far.stan"
    text = PROGRAM.read_text().replace("glm(x, alpha,", "glm(x, alpha - 30,")
    program.write_text(text.replace("alpha ~ normal(0, 2.5)", "alpha ~ uniform(25, 35)"))
    with pytest.raises(InputError, match="not finite at any of the parameter values tried"):
        stansub.sample(program, sources(folder), **SHORT)
    saved, inits = tmp_path / "far.checkpoint", {"alpha": 30.0, "beta": [0.0, 0.0, 0.0]}
    draws = stansub.sample(program, sources(folder), inits=inits, checkpoint=saved, **SHORT)
    assert inference_data.attrs(draws)["settings"]["evaluator"] == "partitions"
    assert 29 < float(draws.posterior["alpha"].mean()) < 31
    np.testing.assert_array_equal(unconstrained(stansub.read_checkpoint(saved)), unconstrained(draws))
    assert stansub.loo(draws, observations=100).n_data_points == N


@pytest.mark.slow
def test_predictions_of_partitions_are_those_of_memory(folder: Path, many: None, tmp_path: Path) -> None:
    quantities = "generated quantities { array[N] int y_rep = bernoulli_logit_rng(alpha + x * beta); }"
    program = tmp_path / "logistic_rep.stan"
    program.write_text(f"{PROGRAM.read_text()}\n{quantities}")
    draws = stansub.sample(program, sources(folder), **OPTIONS | {"iter_sampling": 300})
    assert inference_data.attrs(draws)["settings"]["evaluator"] == "partitions"
    assert "y_rep" not in inference_data.group(draws, "posterior")
    found = stansub.ppc(draws, observations=200, n_draws=100)
    rows = pa.concat_tables(table(part) for part in range(PARTS)).to_pandas()
    observed, replicated = (
        inference_data.group(found, name)["y"] for name in ("observed_data", "posterior_predictive")
    )
    chosen = observed["observation"].values
    np.testing.assert_array_equal(observed.values, rows["y"].to_numpy()[chosen])
    mean = inference_data.group(draws, "posterior")
    eta = mean["alpha"].values.mean() + rows[COLUMNS["x"]].to_numpy()[chosen] @ mean["beta"].values.mean((0, 1))
    share = replicated.values.mean((0, 1))
    expected = 1 / (1 + np.exp(-eta))
    z = (share - expected) / np.sqrt(expected * (1 - expected) / 100)
    assert np.abs(z).max() < 5
    assert np.abs((share - expected[::-1]) / np.sqrt(expected * (1 - expected) / 100)).max() > 10, "other rows"


QUANTITIES = """data {{ int N; vector[N] y; }}
parameters {{ real mu; }}
model {{ y ~ normal(mu, 1); }}
generated quantities {{
  array[N] real y_rep = normal_rng(rep_vector(mu, N), 1);
  {further}
}}"""


@pytest.mark.parametrize(
    ("further", "saved", "is_written"),
    [
        ("", frozenset(), False),
        ("", frozenset({"y_rep"}), True),
        ("", None, True),
        ("real highest = max(y_rep);", frozenset(), True),
    ],
)
def test_quantities_of_rows_are_not_written(further: str, saved: frozenset[str] | None, is_written: bool) -> None:
    program = syntax.parse(QUANTITIES.format(further=further))
    values = Data({"N": 2, "y": np.zeros(2)}, program.data.declarations, "data")
    holder: Any = SimpleNamespace(program=program, counts=("N",), sizes=("N",), values=values)
    assert Describe(saved)._writes_rows(holder) == is_written


def test_what_is_no_partition() -> None:
    with pytest.raises(InputError, match="partitions must be Parquet files, or functions"):
        DataPartitions([])
    with pytest.raises(InputError, match="partitions must be Parquet files, or functions"):
        DataPartitions([3])  # type: ignore[list-item]
