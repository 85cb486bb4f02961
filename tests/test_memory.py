"""How much memory there is, limits included; and what users read where it is short."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from stansub import memory
from stansub.errors import RunError

MB = 10**6


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 8,000 MB free and no limits."""
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    write(tmp_path, "proc/meminfo", "MemTotal: 16000000 kB\nMemAvailable: 7812500 kB\n")
    write(tmp_path, "proc/self/status", "Name:\tpython\nVmSize:\t  100000 kB\nVmData:\t 50000 kB\n")
    return tmp_path


def write(root: Path, name: str, text: object) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(f"{text}\n")


def group(root: Path, limit: object, used: object, *, version: int, stat: str = "") -> None:
    names = {1: ("memory.limit_in_bytes", "memory.usage_in_bytes"), 2: ("memory.max", "memory.current")}[version]
    for name, value in zip((*names, "memory.stat"), (limit, used, stat), strict=True):
        write(root, name, value)


def test_the_machine(machine: Path) -> None:
    assert memory.room(machine).size == 8000 * MB
    assert str(memory.room(machine)) == "8 GB are free on this machine"


def test_control_groups_of_version_2(machine: Path) -> None:
    write(machine, "proc/self/cgroup", "0::/job/step")
    top = machine / "sys/fs/cgroup"
    group(top / "job/step", "max", 300 * MB, version=2)
    assert memory.room(machine).size == 8000 * MB
    group(top / "job", 1000 * MB, 300 * MB, version=2, stat=f"anon 5\ninactive_file {50 * MB}")
    assert memory.room(machine).size == 750 * MB
    assert "750 MB are left under the limit of this container or job (cgroup)" in str(memory.room(machine))


@pytest.mark.parametrize("seen", ["memory/job", "memory"], ids=["host", "container"])
def test_control_groups_of_version_1(machine: Path, seen: str) -> None:
    write(machine, "proc/self/cgroup", "5:cpuset:/\n4:memory,other:/job\n1:name=systemd:/\n0::/")
    group(machine / "sys/fs/cgroup" / seen, 2**63 - 4096, 300 * MB, version=1)
    assert memory.room(machine).size == 8000 * MB
    group(machine / "sys/fs/cgroup" / seen, 500 * MB, 300 * MB, version=1, stat=f"total_inactive_file {20 * MB}")
    assert memory.room(machine).size == 220 * MB


@pytest.mark.parametrize(("which", "left"), [("RLIMIT_AS", 900 * MB - 102_400_000), ("RLIMIT_DATA", 848_800_000)])
def test_limits_of_the_process(machine: Path, monkeypatch: pytest.MonkeyPatch, which: str, left: int) -> None:
    limits = {getattr(resource, which): 900 * MB}
    monkeypatch.setattr(resource, "getrlimit", lambda one: (limits.get(one, resource.RLIM_INFINITY), 0))
    assert memory.room(machine).size == left
    assert "ulimit" in str(memory.room(machine))


def test_other_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (900 * MB, 900 * MB))
    assert memory.room(tmp_path).size > 900 * MB


def nested(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 7 GiB"),
        OSError(12, "Cannot allocate memory"),
        ImportError("_x.so: failed to map segment from shared object"),
        nested(ValueError("no engine"), MemoryError()),
        RuntimeError("std::bad_alloc"),
    ],
)
def test_shortage(error: BaseException) -> None:
    assert memory.shortage(error).startswith("memory is short")
    assert "reduce the request or raise the limit" in memory.shortage(error)


def test_what_cannot_be_loaded_lacks_memory_only_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = ImportError("No module named 'h5py'"), RuntimeError("can't start new thread")
    assert not any(map(memory.shortage, errors))
    monkeypatch.setattr(memory, "_rooms", lambda root: iter([memory.Room(30 * MB, "free")]))
    assert all(map(memory.shortage, errors))
    assert not memory.shortage(ValueError("other"))
    with pytest.raises(
        RunError, match="too little memory: 30 MB are free, but loading the libraries of a run takes about 200 MB"
    ):
        memory.check_start()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not enforce the limit")
def test_a_run_under_a_limit_ends_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text('{"N": 2, "K": 1, "y": [0, 1], "x": [[1], [2]]}')
    program = Path(__file__).parents[1] / "stan_models" / "logistic.stan"
    limit = 600 * MB
    done = subprocess.run(
        [sys.executable, "-P", "-m", "stansub.cli", "sample", program, "data.json"],
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("stansub: error: too little memory: ")
    assert "left of the address space (ulimit -v)" in done.stderr
    assert done.stderr.count("\n") == 1


PEAK = """
import sys
import numpy as np
import stansub
from stansub.output import inference_data
from stansub.run.constrain import SavedQuantities, memory_needed

def memory(field):
    return next(1024 * int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(field))

def run(n, draws):
    data = {"N": n, "y": np.random.default_rng(1).normal(1, 2, n), "limit": 1e6}
    posterior = model.with_data(data, seed=1)
    idata = stansub.sample(posterior, chains=2, iter_warmup=100, iter_sampling=draws, seed=1, observation_level=True)
    inference_data.write(idata, "draws.nc", overwrite=True)
    return memory_needed(posterior, chains=2, draws=draws, warmup=100, kept=SavedQuantities(observation_level=True))

model = stansub.compile_model(sys.argv[1])
run(100, 200)
before = memory("VmRSS")
needed = run(*map(int, sys.argv[2:]))
print(needed, memory("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("n", "draws"),
    [
        (300, 2000),
        pytest.param(500, 20_000, marks=pytest.mark.slow),
        pytest.param(20_000, 400, marks=pytest.mark.slow),
    ],
)
def test_the_memory_that_draws_take_is_predicted(n: int, draws: int, tmp_path: Path) -> None:
    program = Path(__file__).parent / "run" / "programs" / "quantities.stan"
    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-c", PEAK, program, str(n), str(draws)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    needed, peak = map(int, done.stdout.split())
    assert peak / 1.5 < needed < 1.5 * peak
