"""Variables inside braces that depend on no observation are declared in the block, and nothing else changes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluate import log_density

from stansub.stan.analysis import Analysis
from stansub.stan.passes.block_variables import with_block_variables
from stansub.stan.source import read
from stansub.stan.syntax import Declaration, Program

HEAD = "data { int N; int J; int T; int only; vector[N] y; vector[N] x; vector[J] w; array[N] int g; vector[T] f; }"
PARAMETERS = "parameters { real a; real<lower=0> tau; vector<lower=0>[2] s; vector[J] z; }"


def program(tmp_path: Path, model: str, transformed: str = "") -> Program:
    file = tmp_path / "program.stan"
    block = f"transformed parameters {{ {transformed} }}" if transformed else ""
    file.write_text(f"{HEAD} {PARAMETERS} {block} model {{ z ~ normal(0, 1); {model} }}")
    return read(file).program


def moved(given: Program) -> set[str]:
    """What the blocks of the program declare."""
    blocks = given.transformed_parameters, given.model
    return {one.name for block in blocks for one in block.statements if isinstance(one, Declaration)}


def values(rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
    n, j, t = 12, 4, 3
    data = {"N": n, "J": j, "T": t, "only": 0, "y": rng.standard_normal(n), "x": rng.standard_normal(n)}
    data |= {"w": rng.standard_normal(j), "g": rng.integers(1, j + 1, n), "f": rng.standard_normal(t)}
    parameters = {"a": rng.standard_normal(), "z": rng.standard_normal(j)}
    return data, parameters | {"tau": rng.gamma(2), "s": rng.gamma(2, size=2)}


SUM = "y ~ normal(a + u[g], r);"
EFFECTS = "real r = s[1] * s[2]; vector[J] u = tau * z;"


@pytest.mark.parametrize(
    ("model", "found"),
    [
        (f"{{ {EFFECTS} {SUM} }}", {"r", "u"}),
        (f"if (!only) {{ {EFFECTS} {SUM} }}", {"r", "u"}),
        (f"if (!only) {{ {{ {EFFECTS} {SUM} }} }}", {"r", "u"}),
        (f'profile("all") {{ {EFFECTS} {SUM} }}', {"r", "u"}),
        (f"{{ real r; vector[J] u; r = s[1]; for (j in 1 : J) u[j] = tau * z[j] + w[j]; {SUM} }}", {"r", "u"}),
        (f"{{ int k = 2; real r, q; r = s[k]; q = 1; vector[J] u = z * q; {SUM} }}", {"k", "r", "q", "u"}),
        (f"real q = tau; {{ real r = q; vector[J] u = z; {SUM} }}", {"q", "r", "u"}),
        ("{ real r = tau; for (n in 1 : N) { real m = a + x[n] * r; y[n] ~ normal(m, r); } }", {"r"}),
        # Not what depends on observations, may count them, or adds to the target.
        (f"{{ {EFFECTS} real c = mean(y) * tau; y ~ normal(u[g] + c, r); }}", {"r", "u"}),
        ("{ vector[T] h = f * tau; real r = tau; y ~ normal(h[1], r); }", {"r"}),
        ("{ real r = tau; for (j in 1 : J) { r += square(z[j]); r ~ normal(0, 1); } y ~ normal(a, r); }", set()),
        # Not what changes after it is read, or reads what does.
        (f"{{ real r = s[1]; vector[J] u = z; {SUM} r = s[2]; {SUM} }}", {"u"}),
        ("{ real r = s[1]; real q = 1; y ~ normal(q, r); q += r * y[1]; real c = q; y ~ normal(c, r); }", {"r"}),
        # Not from a branch beside the likelihood, on parameters, or with an alternative; nor a name that is used twice.
        ("if (!only) { real r = tau; z ~ normal(0, r); } { real q = tau; y ~ normal(a, q); }", {"q"}),
        (f"if (a > 0) {{ {EFFECTS} {SUM} }}", set()),
        (f"if (!only) {{ {EFFECTS} {SUM} }} else {{ y ~ normal(a, tau); }}", set()),
        ("{ real r = tau; y ~ normal(a, r); } { real r = s[1]; x ~ normal(a, r); }", set()),
        ("for (k in 1 : 2) { real r = s[k]; y ~ normal(a, r); }", set()),
    ],
)  # fmt: skip
def test_what_no_observation_changes_is_declared_in_the_block(tmp_path: Path, model: str, found: set[str]) -> None:
    given = program(tmp_path, model)
    written = with_block_variables(given, "N")
    assert moved(written) == found
    assert (written is given) == (found <= moved(given))
    data, parameters = values(np.random.default_rng(1))
    assert log_density(written, data, parameters) == pytest.approx(log_density(given, data, parameters))


def test_transformed_parameters_are_read_likewise(tmp_path: Path) -> None:
    given = program(tmp_path, "y ~ normal(mu, tau);", f"vector[N] mu; {{ {EFFECTS} mu = u[g] * r; }}")
    assert moved(with_block_variables(given, "N")) == {"mu", "r", "u"}


def test_the_likelihood_reads_them(tmp_path: Path) -> None:
    """Without the pass it reads what they are computed from."""
    given = program(tmp_path, f"if (!only) {{ {EFFECTS} {SUM} }}")
    split = Analysis.of(given).likelihood_split()
    assert {one.name for one in split.arguments} == {"a", "r", "u"}
