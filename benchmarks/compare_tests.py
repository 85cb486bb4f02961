"""Tests beside each other on workloads of the suite: effective draws a second, and what a step evaluates.

python benchmarks/compare_tests.py logistic-1e5 poisson-1e5 linear-1e5

Each run is `stansub.sample` with its defaults but for the test. Seconds are those of sampling, audits left out, on all
cores, and once more with all that comes before. Observations are those that decisions draw, at either end of a move;
the last columns are what the audit says of the decisions.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
from suite.base import elapsed
from suite.workloads import WORKLOADS, data_files

import stansub
from stansub.output.inference_data import attrs
from stansub.output.record import record_of
from stansub.output.statistics import table
from stansub.stan.toolchain.cache import cache_dir

TESTS: dict[str, dict[str, Any]] = {
    "factorised, proved": {"test": "factorised"},
    "factorised, learned": {"test": "factorised", "bounds": "learned"},
    "pocock": {"test": "pocock"},
    "penalty": {"test": "penalty"},
    "bernstein": {"test": "bernstein"},
}
HEAD = ("workload", "test", "ESS a second", "with set-up", "observations a step", "accepted", "audit")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; wrong ones end the program with code 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", nargs="+", choices=WORKLOADS, metavar="workload")
    parser.add_argument("--test", action="append", choices=TESTS, metavar="TEST", help=f"one of {', '.join(TESTS)}")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    print(f"| {' | '.join(HEAD)} |\n{'|---' * len(HEAD)}|")
    for name in options.workload:
        workload = WORKLOADS[name]
        data, _ = data_files(workload, cache_dir() / "benchmarks")
        for test in options.test or TESTS:
            try:
                idata = stansub.sample(workload.program, data, seed=options.seed, show_progress=False, **TESTS[test])
            except stansub.InputError as error:
                print(f"| {name} | {test} | {str(error).split(':')[0]} |" + " |" * (len(HEAD) - 3))
                continue
            print(f"| {name} | {test} | {' | '.join(cells(idata))} |", flush=True)


def cells(idata: Any) -> list[str]:
    """A row's figures."""
    facts, record = attrs(idata), record_of(idata)
    ess = float(table(idata, percentiles=())["ess_bulk"].min())
    seconds = elapsed(facts["sampling_time"], facts["settings"]["parallel_chains"])
    used = float(np.mean(idata["sample_stats"]["n_obs_used"]))
    audit = "none needed"
    if record.acceptances is not None:
        audit = f"acceptance {record.acceptances.mean:.1g} too high, at most {record.acceptances.limit:.1g}"
    elif record.audit is not None:
        audit = f"{record.audit.n_wrong} of {record.audit.n_audited} wrong"
    elif record.estimates is not None:
        audit = f"errors of {record.estimates.mean_square**0.5:.2f} standard errors"
    whole = facts["compile_time"] + facts["setup_time"] + facts["wall_time"]
    return [f"{ess / seconds:,.0f}", f"{ess / whole:,.0f}", f"{used:,.0f}", f"{record.acceptance_rate:.1%}", audit]


if __name__ == "__main__":
    main()
