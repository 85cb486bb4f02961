"""Run all applications, or some, and write the index of their pages: reports/papers/README.md.

python examples/papers/run_all.py                    # small sizes, under 25 minutes on two cores
python examples/papers/run_all.py ica covtype        # two of them
python examples/papers/run_all.py --size full        # the sizes of the papers: hours
python examples/papers/run_all.py --index            # the index alone, of the pages that there are
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from common import REPORTS, ROOT, seconds_text

HERE = Path(__file__).resolve().parent


class Application(NamedTuple):
    """Where a paper has it: Korattikara et al., Bardenet et al., Chen et al. (2014) or Johndrow et al. (2015)."""

    name: str
    paper: str
    place: str


APPLICATIONS = (
    Application("random_walk_logistic", "Korattikara, Chen and Welling", "5.1; fig. 2, 3, 4"),
    Application("ica", "Korattikara, Chen and Welling", "5.2; fig. 5"),
    Application("variable_selection", "Korattikara, Chen and Welling", "5.3; fig. 6, 7"),
    Application("sgld", "Korattikara, Chen and Welling", "5.4; fig. 8"),
    Application("decreasing_epsilon", "Korattikara, Chen and Welling", "6"),
    Application("asymptotic_test", "Bardenet, Doucet and Holmes", "4.1; fig. 4"),
    Application("covtype", "Bardenet, Doucet and Holmes", "4.2; fig. 5, 6, 7a"),
    Application("gaussian_mean", "Bardenet, Doucet and Holmes", "4.3; fig. 7b"),
    Application("sublinear_logistic", "Chen, Mansinghka and Ghahramani", "4.1; fig. 5"),
    Application("joint_dpm", "Chen, Mansinghka and Ghahramani", "4.2; fig. 6"),
    Application("stochastic_volatility", "Chen, Mansinghka and Ghahramani", "4.3; fig. 9"),
    Application("compminimax", "Johndrow, Mattingly, Mukherjee and Dunson", "2, 3; table 1, fig. 1, 2"),
    Application("low_rank_gp", "Johndrow, Mattingly, Mukherjee and Dunson", "4.3, 4.4; fig. 5, 6"),
    Application("polya_gamma", "Johndrow, Mattingly, Mukherjee and Dunson", "4.1, 4.2; fig. 4"),
)

HEAD = """# Applications of the papers

Each page describes one run of `python examples/papers/run_all.py`: the claim of a paper, the same figure from our run,
the differences and their reasons, and the cost of the same posterior with stansub's default and with NUTS.
`--size full` uses the sizes of the papers.

| paper, section | application | result | size | time |
|---|---|---|---|---|
"""


def run(application: Application, options: list[str]) -> bool:
    """Run an application, and return whether it succeeded."""
    print(f"== {application.name}", flush=True)
    began = time.perf_counter()
    code = subprocess.run([sys.executable, str(HERE / application.name / "run.py"), *options]).returncode
    print(f"== {application.name}: {seconds_text(time.perf_counter() - began)}, exit code {code}", flush=True)
    return code == 0


def row(application: Application) -> str:
    """Return a row of the index."""
    place = f"{application.paper}, {application.place}"
    results = REPORTS / application.name / "results.json"
    if not results.is_file():
        return f"| {place} | {application.name} | not run | | |\n"
    facts: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))
    page = f"[{facts['title']}]({application.name}/README.md)"
    return f"| {place} | {page} | {facts['summary']} | {facts['size']} | {seconds_text(facts['seconds'])} |\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [one.name for one in APPLICATIONS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(names)}; all by default")
    parser.add_argument("--size", choices=("small", "full"), default="small")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data-dir", help="folder of data sets; without them data of the same shape are simulated")
    parser.add_argument("--index", action="store_true", help="write the index alone")
    given = parser.parse_args()
    if unknown := set(given.names) - set(names):
        parser.error(f"no such application: {', '.join(sorted(unknown))}; choose from {', '.join(names)}")
    options = ["--size", given.size, "--seed", str(given.seed)]
    options += ["--data-dir", given.data_dir] if given.data_dir else []
    chosen = [] if given.index else [one for one in APPLICATIONS if not given.names or one.name in given.names]
    failed = [one.name for one in chosen if not run(one, options)]
    index = REPORTS / "README.md"
    index.write_text(HEAD + "".join(row(one) for one in APPLICATIONS), encoding="utf-8")
    print(index.relative_to(ROOT))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
