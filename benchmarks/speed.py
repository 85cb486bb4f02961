"""What a decision costs, how chains share the cores, and how soon a second run makes its first draw.

python benchmarks/speed.py                    # N = 1e6 for the decisions, 1e5 for the rest; a few minutes
python benchmarks/speed.py --observations 100000

Costs are medians of several repetitions on simulated data (ten covariates), each through the public interface.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson

import stansub
from stansub.acceptance.decide import make_decider
from stansub.stan.posterior import Posterior
from stansub.types import FloatArray

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "stan_models"))

from simulate import simulate  # noqa: E402


def median_seconds(call: Callable[[], object], repetitions: int = 7) -> float:
    """Median wall time of a call, after one that is not counted."""
    call()
    times = []
    for _ in range(repetitions):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def decision_cost(posterior: Posterior, theta: FloatArray, share: float) -> float:
    """Nanoseconds an observation evaluated in decisions that look once at a share of the blocks, drawn at random."""
    blocks = posterior.blocks
    first = max(2, int(share * len(blocks)))
    # A wide boundary at a first look at `first` blocks: nearly every decision is taken there.
    test = stansub.Austerity(epsilon=0.49, looks=stansub.Geometric(first=first))
    decider = make_decider(posterior.population.evaluator(), blocks.sizes, test)
    rng = np.random.default_rng(0)

    def decisions() -> float:
        decider.reset(theta)
        before = decider.n_evaluated
        began = time.perf_counter()
        for _ in range(20):
            candidate = theta + 0.01 * rng.standard_normal(posterior.dim)
            decider.decide(candidate, np.log1p(-rng.random()), 0.0, rng.bit_generator.capsule)
        return (time.perf_counter() - began) / (decider.n_evaluated - before)

    decisions()
    return statistics.median(decisions() for _ in range(5)) * 1e9


def sequential_pass(posterior: Posterior, theta: FloatArray) -> float:
    """Nanoseconds an observation in one sequential pass of the program that serves the decisions."""
    return median_seconds(lambda: posterior.full.log_density(theta)) / posterior.blocks.n_observations * 1e9


def decisions(program: str, n: int, folder: Path) -> None:
    """Cost per observation in a decision against one sequential pass of the same library."""
    data = simulate(program, observations=n, covariates=10, seed=1)
    path = folder / f"{program}.json"
    path.write_bytes(orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY))
    compiled = stansub.compile_model(ROOT / "stan_models" / f"{program}.stan")
    for size in (1, 16, 64, 256, 1024):
        if n / size > 100_000:
            continue  # an instance an observation: memory
        posterior = compiled.with_data(path, block_size=size, seed=1)
        # The speed of exp and log1p depends on their arguments: both at the same parameters, away from 0.
        theta = np.random.default_rng(1).normal(0.0, 0.3, posterior.dim)
        full = sequential_pass(posterior, theta)
        cost = decision_cost(posterior, theta, 0.05)
        name = f"{program}, N = {n:,}, blocks of {size}"
        print(f"{name:<52} {cost:7.1f} ns an observation; full pass {full:5.1f}; ratio {cost / full:5.2f}", flush=True)


def two_chains(n: int) -> None:
    """Throughput of two chains on two threads against one chain alone."""
    compiled = stansub.compile_model(ROOT / "stan_models" / "logistic.stan")
    data = simulate("logistic", observations=n, covariates=10, seed=1)

    def steps_per_second(chains: int) -> float:
        idata = stansub.sample(
            compiled,
            data,
            chains=chains,
            parallel_chains=chains,
            iter_warmup=200,
            iter_sampling=3000,
            seed=1,
            test=stansub.Exact(),
            audit=0,
            proposal="adaptive-metropolis",
            control_variates=0,
            show_progress=False,
        )
        return chains * 3000 / max(idata["chain_stats"]["sampling_time"].to_numpy())

    ratios = [steps_per_second(2) / steps_per_second(1) for _ in range(3)]
    print(f"{'two chains against one, exact, N = ' + format(n, ','):<52} {statistics.median(ratios):7.2f} times")


def second_run(folder: Path, n: int) -> None:
    """Wall time of a whole command that makes ten draws of one chain, model in the cache."""
    path, program = folder / "second.json", ROOT / "stan_models" / "logistic.stan"
    data = simulate("logistic", observations=n, covariates=10, seed=1)
    path.write_bytes(orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY))
    command = [sys.executable, "-P", "-m", "stansub.cli", "sample", str(program), str(path), "--chains", "1"]
    command += ["--iter-warmup", "0", "--iter-sampling", "10", "--seed", "1", "--inits", "0", "--force"]
    command += ["--output", str(folder / "second.nc")]

    def run() -> None:
        subprocess.run(command, check=True, capture_output=True)

    took = median_seconds(run, repetitions=5)
    print(f"{'second run, ten draws and the summary, N = ' + format(n, ','):<52} {took:7.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--observations", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        second_run(folder, 100_000)
        two_chains(100_000)
        for program in ("logistic", "logistic_reduce_sum", "logistic_log_lik_i"):
            decisions(program, options.observations, folder)


if __name__ == "__main__":
    main()
