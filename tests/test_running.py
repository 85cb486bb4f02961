"""What the pages on running, kernels and output say: options exist, examples run, statistics have their sentences."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stansub.cli.application import app
from stansub.kernels.base import Stat
from stansub.kernels.combine import MixtureKernel
from stansub.kernels.metropolis import COUNTS, LEVEL, STATS
from stansub.kernels.surrogate import TRANSITION_STATS
from stansub.kernels.within_gibbs import LEVELS_ACCEPTED
from stansub.output import inference_data
from stansub.run import config
from stansub.run.collect import descriptions

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = ("howto/running.md", "howto/kernels.md", "reference/output.md")
RUNNING, KERNELS, OUTPUT = ((DOCS / name).read_text() for name in PAGES)


def blocks(language: str) -> list[str]:
    """Of the page of kernels."""
    return re.findall(rf"```{language}\n(.*?)```", KERNELS, flags=re.DOTALL)


def test_options_that_are_shown_exist() -> None:
    shown = set(re.findall(r"--([a-z][a-z-]*)", RUNNING))
    known = {config.declared(name).flag or name.replace("_", "-") for name in config.names()} | {"force", "verbose"}
    assert {"checkpoint-every", "resume", "executor", "iter-sampling"} <= shown
    assert shown <= known
    assert {"sample"} <= {command.name or command.callback.__name__ for command in app.registered_commands}  # type: ignore[union-attr]


@pytest.mark.slow
def test_the_kernel_on_a_parameter_without_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("effects.stan").write_text(blocks("stan")[0])
    made: dict[str, Any] = {}
    # Shorter than on the page.
    code = blocks("python")[0].replace("seed=1)", "seed=1, iter_warmup=300, iter_sampling=300, show_progress=False)")
    exec(code, made)
    assert capsys.readouterr().out == "0\n"
    stats = inference_data.group(made["idata"], "sample_stats")
    assert stats["effects.n_obs_used"].values.min() > 0
    assert stats["scale.accepted"].values.any()
    tau = inference_data.group(made["idata"], "posterior")["tau"].values
    assert (np.diff(tau, axis=1) != 0).any()


def test_reversible_jumps_find_the_features(capsys: pytest.CaptureFixture[str]) -> None:
    code = next(one for one in blocks("python") if "ReversibleJump" in one)
    made: dict[str, Any] = {}
    exec(code.replace("seed=1)", "seed=1, iter_warmup=1500, iter_sampling=500, chains=2, show_progress=False)"), made)
    beta = inference_data.group(made["idata"], "posterior")["beta"].values
    inside = (beta != 0).mean(axis=(0, 1))
    assert (inside[:3] > 0.9).all()
    assert inside[3:].mean() < 0.1
    assert capsys.readouterr().out


@pytest.mark.parametrize("stat", [*STATS, LEVEL, *TRANSITION_STATS, LEVELS_ACCEPTED], ids=lambda one: one.name)
def test_every_statistic_stands_on_the_page(stat: Stat) -> None:
    assert f"| `{stat.name}` | {stat.sentence} |" in OUTPUT


def test_tables_are_those_of_what_is_declared() -> None:
    made = descriptions((*STATS, *COUNTS))
    for group in ("sample_stats", "chain_stats"):
        table = OUTPUT.split(f"| `{group}` | |\n|---|---|\n")[1].split("\n\n")[0]
        assert dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE)) == made[group]
    component = MixtureKernel.stats.fget(MixtureKernel({}, np.array([])))[0].name  # type: ignore[attr-defined]
    assert f"`{component}`" in OUTPUT
