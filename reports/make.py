"""Make the reports in this folder anew: the flights and two of the programs in stan_models, beside NUTS.

python reports/make.py                 # all three, some minutes
python reports/make.py poisson         # one of them

Draws, references and data go to the folder reports/draws, which is not part of the repository.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT, DRAWS = HERE.parent, HERE / "draws"
SIMULATED = {"linear": 5, "poisson": 5}  # covariates
OBSERVATIONS = 50_000


def run(*command: str | Path) -> None:
    """Run a command in the folder of the draws and show it."""
    print("$", *command, flush=True)
    subprocess.run([str(part) for part in command], cwd=DRAWS, check=True)


def make_data(name: str) -> Path:
    """Write the data of a report; returns its program."""
    if name == "flights":
        run(sys.executable, ROOT / "examples" / "flights.py", "flights.json")
        return ROOT / "examples" / "flights.stan"
    size = ["--observations", str(OBSERVATIONS), "--covariates", str(SIMULATED[name]), "--seed", "1"]
    run(sys.executable, ROOT / "stan_models" / "simulate.py", name, f"{name}.json", *size)
    return ROOT / "stan_models" / f"{name}.stan"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ["flights", *SIMULATED]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(names)}; all by default")
    chosen = parser.parse_args().names or names
    if unknown := set(chosen) - set(names):
        parser.error(f"no such report: {', '.join(sorted(unknown))}; choose from {', '.join(names)}")
    DRAWS.mkdir(exist_ok=True)
    stansub = [sys.executable, "-P", "-m", "stansub.cli"]
    for name in chosen:
        program = make_data(name)
        run(*stansub, "sample", program, f"{name}.json", "--seed", "1", "--force", "--quiet")
        folder = ["--output-dir", HERE / name]
        run(*stansub, "compare", f"{name}.nc", "--seed", "1", "--force", "--quiet", *folder)


if __name__ == "__main__":
    main()
