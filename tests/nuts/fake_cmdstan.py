"""A CmdStan that is none: it "compiles" every program into a script that answers with draws known beforehand."""

import sys
from pathlib import Path

import numpy as np
from clocks import HANGS
from numpy.typing import NDArray

# What the script writes: quantities in CmdStan's order, each as a function of the chain and of the draw.
WARMUP_LEAPFROGS, LEAPFROGS = 3, 7
WARMUP_SECONDS, SECONDS = 1.5, 0.25

SCRIPT = """#!{python}
import json, os, pathlib, sys, time
arguments = dict(one.split("=", 1) for one in sys.argv[1:] if "=" in one)
if sys.argv[1:] == ["info"]:
    print("stan_version_major = 2\\nstan_version_minor = 37\\nstan_version_patch = 0\\nSTAN_THREADS=false")
    sys.exit()
files = [one.split("=", 1)[1] for one in sys.argv[1:] if one.startswith("file=")]
data, chain = json.loads(pathlib.Path(files[0]).read_text()), int(arguments["id"])
if data["N"] == 13:
    print("Exception: normal_lpdf: it is unlucky (in 'toy.stan', line 9, column 2 to column 28)")
    print("Initialization between (-2, 2) failed after 100 attempts.")
    sys.exit(70)
if data["N"] == 14 and chain == 2:
    os.abort()
if data["N"] == 15:
    pathlib.Path(__file__ + ".%d.pid" % chain).write_text(str(os.getpid()))
    time.sleep({endless})
warmup, sampling = int(arguments["num_warmup"]), int(arguments["num_samples"])
code = pathlib.Path(__file__ + ".stan").read_text()
tall = ["log_lik.%d" % (i + 1) for i in range(data["N"])] if "log_lik" in code else []
rich = {rich} if "tuple" in code else []
names = ["mu", *("omega.%d.%d" % (i, j) for j in (1, 2, 3) for i in (1, 2)), *tall, *rich]
depth = int(arguments["max_depth"])
with open(files[1], "w") as out:
    print("# stan_version_major = 2\\n# stan_version_minor = 37\\n# stan_version_patch = 0", file=out)
    print("# model = toy_model\\n# method = sample (Default)\\n#   sample", file=out)
    print("#     num_samples = %d\\n#     num_warmup = %d" % (sampling, warmup), file=out)
    print("#     save_warmup = true\\n#     thin = 1 (Default)\\n#     adapt\\n#       engaged = true", file=out)
    print("#       delta = %s" % arguments["delta"], file=out)
    print("#     algorithm = hmc\\n#       hmc\\n#         engine = nuts\\n#           nuts", file=out)
    print("#             max_depth = %d\\n#         metric = diag_e (Default)" % depth, file=out)
    print("# id = %d\\n# random\\n#   seed = %s" % (chain, arguments["seed"]), file=out)
    head = "lp__,accept_stat__,stepsize__,treedepth__,n_leapfrog__,divergent__,energy__"
    print(",".join([head, *names]), file=out)
    for t in range(warmup + sampling):
        draw = t - warmup
        if draw == 0:
            print("# Adaptation terminated\\n# Step size = 0.5", file=out)
            print("# Diagonal elements of inverse mass matrix:\\n# 1, 1, 1, 1, 1, 1, 1", file=out)
        leapfrogs = {leapfrogs} if draw >= 0 else {warmup_leapfrogs}
        limited = depth if draw == 1 else 3
        divergent = int(draw in (2, 3) and chain == 2)
        omega = [10 * i + j + draw / 1000 for j in (1, 2, 3) for i in (1, 2)]
        values = [chain + draw / 1000, *omega, *(0 for _ in tall), *(k + draw / 1000 for k in range(len(rich)))]
        row = [-1.5, 0.9, 0.5, limited, leapfrogs, divergent, 2.5, *values]
        print(",".join("%.12g" % value for value in row), file=out)
    print("# \\n#  Elapsed Time: {warmup_seconds} seconds (Warm-up)", file=out)
    print("#                {seconds} seconds (Sampling)", file=out)
    print("#                %g seconds (Total)\\n# " % ({warmup_seconds} + {seconds}), file=out)
"""

# Of array[2] tuple(int, real) at; tuple(complex, vector[2]) ct; complex_vector[2] cv; as CmdStan orders them.
RICH = [
    *("at.1:1", "at.1:2", "at.2:1", "at.2:2", "ct:1.real", "ct:1.imag", "ct:2.1", "ct:2.2"),
    *("cv.1.real", "cv.1.imag", "cv.2.real", "cv.2.imag"),
]

MAKEFILE = """CMDSTAN_VERSION := 2.37.0
%: %.stan
\t@! grep -q unluckily $< || {{ echo "toy.hpp:3:1: error: 'unluckily' was not declared" >&2; exit 1; }}
\t@cp {folder}/toy.py $@ && chmod +x $@
"""


def build(folder: Path) -> Path:
    """The folder of a CmdStan as cmdstanpy expects it."""
    home = folder / "cmdstan-2.37.0"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "stanc").write_text(f"#!{sys.executable}\nprint('{{\"included_files\": []}}')\n")
    (home / "bin" / "stanc").chmod(0o755)
    (home / "makefile").write_text(MAKEFILE.format(folder=home))
    filled = SCRIPT
    for name, value in {
        "python": sys.executable,
        "rich": RICH,
        "leapfrogs": LEAPFROGS,
        "warmup_leapfrogs": WARMUP_LEAPFROGS,
        "endless": 2 * HANGS,
        "warmup_seconds": WARMUP_SECONDS,
        "seconds": SECONDS,
    }.items():
        filled = filled.replace(f"{{{name}}}", str(value))
    (home / "toy.py").write_text(filled)
    return home


def omega(chains: int, draws: int) -> NDArray[np.float64]:
    """The draws of omega that the script writes, shape (chain, draw, 2, 3)."""
    base = np.array([[11, 12, 13], [21, 22, 23]], dtype=float)
    return base + np.arange(draws)[:, None, None] / 1000 + np.zeros((chains, 1, 1, 1))
