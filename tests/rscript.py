"""Whether R can run here."""

from __future__ import annotations

import shutil
import subprocess


def lacks_r() -> str:
    """Why R cannot run these programs; nothing if it can."""
    if shutil.which("Rscript") is None:
        return "R is not installed"
    asked = "quit(status = !(requireNamespace('brms', quietly = TRUE) && requireNamespace('rstan', quietly = TRUE)))"
    failed = subprocess.run(["Rscript", "-e", asked], capture_output=True, check=False).returncode
    return "brms or rstan is not installed" if failed else ""
