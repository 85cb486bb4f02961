"""Facts on where and when figures were measured."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from stansub.run.choices import cores

_PACKAGES = ("stansub", "bridgestan", "nutpie", "cmdstanpy", "numpyro", "jax", "numba", "arviz", "numpy", "scipy")


def facts() -> dict[str, Any]:
    """Processor, memory, load, system, versions and date."""
    from stansub.stan.toolchain.bridgestan_home import find_home

    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu(),
        "cores": cores(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "load_before": round(os.getloadavg()[0], 2),
        "system": platform.platform(),
        "versions": {"python": platform.python_version(), "stan": find_home().stan_version, **_versions()},
    }


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _cpu() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
