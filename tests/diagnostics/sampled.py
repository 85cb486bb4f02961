"""Options of short runs, and a program with replicated data and log likelihoods."""

from typing import Any

from simulated import ROOT

SHORT: dict[str, Any] = {"chains": 2, "iter_warmup": 100, "iter_sampling": 300, "seed": 4, "test": "exact"}
QUANTITIES = ROOT / "tests" / "run" / "programs" / "quantities.stan"
