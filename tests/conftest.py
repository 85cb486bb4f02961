"""Fixtures that several test files share."""

import atexit
import gc
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
from clocks import Clock, set_clock
from hypothesis import HealthCheck, settings
from matplotlib.figure import Figure
from simulated import PROGRAMS, ROOT, Compiled

from stansub.output import inference_data
from stansub.run import progress
from stansub.stan.compilation import CompiledModel, compile_model
from stansub.stan.toolchain import build
from stansub.stan.toolchain.bridgestan_home import _find_home

# The same examples in every run, and none too slow; examples may share what a fixture has made.
settings.register_profile(
    "tests",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("tests")


# Programs after which headers are precompiled: a user may need no more than these, the tests compile dozens.
PROGRAMS_FIRST = build._PROGRAMS_FIRST
# What changes the layout and the colours of output.
SURROUNDINGS = ("CI", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "FORCE_COLOR", "GITHUB_ACTIONS", "LINES", "NO_COLOR")


def pytest_configure() -> None:
    """Give tests, and the programs that they start, the same surroundings wherever they run."""
    # A shell's background jobs ignore interrupts, and those of `nohup` hang-ups; so would what they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.SIG_DFL)
    # Cycles left by failed or interrupted calls are freed before the extension module counts what is alive.
    atexit.register(gc.collect)
    os.umask(0o022)
    inference_data.arviz_module()  # its first import of a day writes a file, at which two processes fail
    build._PROGRAMS_FIRST = 0
    os.environ["TERM"] = "xterm"
    for name in SURROUNDINGS:
        os.environ.pop(name, None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each process neighbouring tests, which share fixtures; one that is done takes half of what another has."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.fixture(scope="session", autouse=True)
def _arviz_without_numba() -> None:
    """Compute ArviZ's statistics as stansub does, whether Numba is installed or not."""
    inference_data.arviz_module()


@pytest.fixture
def pictures_in_full() -> None:
    """Pictures as users see them."""


@pytest.fixture
def pictures_drawn() -> None:
    """Pictures of few pixels, without the search for a layout, which takes longest."""


@pytest.fixture(autouse=True)
def _quick_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures that are built and saved empty, because drawing takes longest, where no test asks for more."""
    save = Figure.savefig

    def empty(figure: Figure, *args: Any, **options: Any) -> None:
        save(Figure(figsize=(1, 1)), *args, **{**options, "dpi": 20})

    def drawn(figure: Figure, *args: Any, **options: Any) -> None:
        figure.set_layout_engine(None)
        save(figure, *args, **{**options, "dpi": 20})

    if "pictures_in_full" not in request.fixturenames:
        monkeypatch.setattr(Figure, "savefig", drawn if "pictures_drawn" in request.fixturenames else empty)


@pytest.fixture
def clock() -> Iterator[Clock]:
    """The clock of this process, which stands still unless the test moves it."""
    with set_clock() as made:
        yield made


NORMAL = """
data {
  int<lower=0> N;
  vector[N] y;
}
parameters {
  real mu;
  real<lower=0> sigma;
}
transformed parameters {
  real precision = 1 / sigma ^ 2;
}
model {
  if (mu > 1000) {
    reject("mu is too large");
  }
  if (mu == 42) {
    print("mu is forty-two");
  }
  y ~ normal(mu, sigma);
  mu ~ normal(0, 2);
  sigma ~ exponential(1);
}
generated quantities {
  vector[2] both = [mu, sigma]';
  real y_rep = normal_rng(mu, sigma);
}
"""


@pytest.fixture(scope="session")
def normal_library() -> Path:
    """A compiled model of normal data with mean and sd, with every kind of block (kept in the user's cache)."""
    return build.compile_library(NORMAL, name="normal")


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache directory of the test's own, no BRIDGESTAN, an empty home directory, nothing remembered."""
    cache = tmp_path / "cache"
    monkeypatch.setattr(build, "_PROGRAMS_FIRST", PROGRAMS_FIRST)
    monkeypatch.setenv("STANSUB_CACHE", str(cache))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("BRIDGESTAN", raising=False)
    _find_home.cache_clear()
    yield cache
    _find_home.cache_clear()


@pytest.fixture
def no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """No line of a stage, however slow the machine is, so that tests can say all that is written."""
    for seconds in ("_SHORT", "_FIRST_LINE", "_LINES_APART"):
        monkeypatch.setattr(progress, seconds, float("inf"))


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
    wanted = [*examples, *(PROGRAMS / f"{name}.stan" for name in QUICK)]
    running: dict[Path, Future[CompiledModel]] = {file: pool.submit(compile_model, file) for file in wanted}

    def get(file: Path) -> CompiledModel:
        if file not in running:
            running[file] = pool.submit(compile_model, file)
        wait(running.values())
        return running[file].result()

    yield get
    pool.shutdown(cancel_futures=True)
