"""Compiled programs for the tests of the model layer."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from simulated import BRMS, PROGRAMS, ROOT, Compiled

from stansub.stan.compiled import CompiledModel, compile_model

# A compilation takes half a minute: tests of other programs are slow.
EXAMPLES = (
    "logistic",
    "logistic_third_derivative",
    "normal_mean",
    "linear",
    "hierarchical_logistic",
)
QUICK = ("brms_gaussian", "survival")


@pytest.fixture(scope="session")
def compiled() -> Iterator[Compiled]:
    """Programs compiled once a session; the first request waits for those that most tests need, two at a time.

    Stan Math's threads do not bear that a library is loaded while the program of another is evaluated.
    """
    pool = ThreadPoolExecutor(max_workers=2)
    examples = (ROOT / "stan_models" / f"{name}.stan" for name in EXAMPLES)
    wanted = [*examples, *(PROGRAMS / f"{name}.stan" for name in QUICK), BRMS]
    running: dict[Path, Future[CompiledModel]] = {file: pool.submit(compile_model, file) for file in wanted}

    def get(file: Path) -> CompiledModel:
        if file not in running:
            running[file] = pool.submit(compile_model, file)
        wait(running.values())
        return running[file].result()

    yield get
    pool.shutdown(cancel_futures=True)
