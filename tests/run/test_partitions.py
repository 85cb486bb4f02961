"""Data in partitions, opened by threads or by dask workers: the same draws, whoever opens them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from clocks import HANGS
from conftest import EXAMPLES
from numpy.typing import NDArray
from pyarrow import parquet

import stansub
from stansub import CompiledModel, DataPartitions, InputError, RunError
from stansub.output import inference_data
from stansub.run import partitions
from stansub.run.executors import dask_client
from stansub.run.partitions import DaskPartitions, Partitions
from stansub.stan.partitions import Describe, LogDensities, PartitionRecipe, stamp_of
from stansub.target.remainders import NoPredictorsError

N, PARTS = 4000, 4
PROGRAM = EXAMPLES / "logistic.stan"
OPTIONS: dict[str, Any] = {"chains": 2, "iter_warmup": 200, "iter_sampling": 2000, "seed": 3, "show_progress": False}
COLUMNS = {"x": ["x1", "x2", "x3"]}


def table(part: int, seed: int = 1) -> pa.Table:
    """Rows of one partition."""
    rng = np.random.default_rng((seed, part))
    n = N // PARTS
    x = rng.standard_normal((n, 3)) + 0.3 * part  # partitions differ
    y = (rng.random(n) < 1 / (1 + np.exp(0.3 - x @ [0.5, -0.5, 0.2]))).astype(np.int64)
    return pa.table({"y": y, **{f"x{k + 1}": x[:, k] for k in range(3)}})


def of_this_process(part: int) -> pa.Table:
    """Rows that are others wherever they are made."""
    return table(part, seed=os.getpid())


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


def theta(idata: Any) -> NDArray[np.float64]:
    values: NDArray[np.float64] = inference_data.group(idata, "unconstrained_posterior")["theta"].values
    return values


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
    here = stansub.sample(logistic, sources(folder), **OPTIONS)
    there = stansub.sample(logistic, sources(folder), executor=f"dask:{client.scheduler_info()['address']}", **OPTIONS)
    np.testing.assert_array_equal(theta(here), theta(there))
    facts = inference_data.attrs(here)
    assert (facts["n_observations"], facts["settings"]["evaluator"], facts["guarantee"]) == (
        N,
        "partitions",
        "exact by proved bounds",
    )
    assert facts["data_hash"] == inference_data.attrs(there)["data_hash"]


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
        values, expected = theta(one).reshape(-1, 4), theta(together).reshape(-1, 4)
        return float(np.abs((values.mean(0) - expected.mean(0)) / expected.std(0)).max() * np.sqrt(len(values) / 8))

    assert z(apart) < 5
    assert z(without) > 10, "a partition less is another posterior"


def test_without_workers_nobody_waits(
    logistic: CompiledModel, folder: Path, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if all workers died while they are asked."""
    there = DaskPartitions(recipes(logistic, files(folder)), client=client)
    there._homes = dict.fromkeys(range(PARTS), "tcp://127.0.0.1:1")
    monkeypatch.setattr(there, "_settle", lambda numbers: None)
    monkeypatch.setattr(partitions, "_PATIENCE", 0.01)
    monkeypatch.setattr(client, "nthreads", dict)
    with pytest.raises(RunError, match="all dask workers are gone"):
        there.answers(dict.fromkeys(range(PARTS), Describe()))


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced(logistic: CompiledModel, folder: Path, client: Any) -> None:
    made = recipes(logistic, files(folder))
    here, there = Partitions(made), DaskPartitions(made, client=client)
    request = LogDensities((np.zeros(4), np.full(4, 0.1)))
    asked = dict.fromkeys(range(PARTS), request)
    expected = here.answers(asked)
    assert there.answers(asked) == expected
    before = dict(there._homes)
    address, pid = next(iter(client.run(os.getpid).items()))
    assert address in before.values()
    os.kill(pid, signal.SIGKILL)
    assert there.answers(asked) == expected, "each partition has answered once"
    here.close()


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


def test_a_run_resumes_from_its_partitions(logistic: CompiledModel, folder: Path, many: None, tmp_path: Path) -> None:
    options = OPTIONS | {"iter_sampling": 1000}
    whole = stansub.sample(PROGRAM, sources(folder), **options)
    kept = tmp_path / "run.checkpoint"
    stansub.sample(PROGRAM, sources(folder), checkpoint=kept, **options)
    again = stansub.read_checkpoint(kept)
    np.testing.assert_array_equal(theta(again), theta(whole))


def test_what_is_no_partition() -> None:
    with pytest.raises(InputError, match="partitions must be Parquet files, or functions"):
        DataPartitions([])
    with pytest.raises(InputError, match="partitions must be Parquet files, or functions"):
        DataPartitions([3])  # type: ignore[list-item]
