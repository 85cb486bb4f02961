"""Programs written anew with a function log_lik_i: compiled, and compared with the originals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from stansub.cli import main
from stansub.stan import data as data_module
from stansub.stan import source
from stansub.stan.compilation import CompiledModel, compile_model
from stansub.stan.data import Data
from stansub.stan.elementwise.elements import NotSeparableError
from stansub.stan.elementwise.reformulation import check_equal, reformulate
from stansub.stan.elementwise.separate import separations
from stansub.types import FloatArray

SUMS = Path(__file__).parent / "programs" / "sums"
N = 60


def normals(*shape: int) -> FloatArray:
    return np.random.default_rng(3).standard_normal(shape)


def integers(low: int, high: int, *shape: int) -> Any:
    return np.random.default_rng(4).integers(low, high, shape, endpoint=True)


DATA: dict[str, dict[str, Any]] = {
    "partners": {"N": N, "y": normals(N), "partner": integers(1, N, N)},
    "grouped_regression": {
        **{"N": N, "K": 2, "J": 4, "x": normals(N, 2), "y": integers(0, 5, N)},
        **{"group": integers(1, 4, N), "exposure": np.exp(normals(N)), "partner": integers(1, N, N)},
    },
    "several_terms": {
        **{"N": N, "K": 3, "x": normals(3, N), "y": np.abs(normals(N)), "count": integers(0, 4, 2, N)},
        **{"weight": np.exp(normals(N)), "partner": integers(1, N, N)},
    },
    "mixture_of_partners": {"N": N, "y": normals(N), "partner": integers(1, N, N)},
    "brms_like": {
        **{"N": N, "Y": normals(N), "K": 3, "X": normals(N, 3), "N_1": 5, "J_1": integers(1, 5, N)},
        **{"Z_1_1": normals(N, 1)[:, 0], "prior_only": 0, "partner": integers(1, N, N)},
    },
}


def compiled(name: str) -> tuple[CompiledModel, Data]:
    read = source.read(SUMS / f"{name}.stan")
    return compile_model(read), data_module.read(DATA[name], read.program.data.declarations)


def check(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["check", *map(str, arguments)])
    return int(stopped.value.code or 0)


@pytest.fixture
def partners(tmp_path: Path) -> Path:
    file = tmp_path / "partners.json"
    file.write_bytes(orjson.dumps(DATA["partners"], option=orjson.OPT_SERIALIZE_NUMPY))
    return file


@pytest.mark.slow
def test_a_form_that_qualifies_is_written_and_qualifies(
    tmp_path: Path, partners: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "written.stan"
    assert check(SUMS / "partners.stan", partners) == 2
    out = capsys.readouterr().out
    assert out.startswith("will not qualify as it stands: rewritten with a function log_lik_i (see below), it does\n")
    assert "\n  return normal_lpdf(y[i] | mu, sigma);\n" in out
    assert "Save this program with --write FILE" in out
    assert check(SUMS / "partners.stan", partners, "--write", written) == 0
    assert f"Written: {written}" in capsys.readouterr().out
    assert check(written, partners) == 0
    assert capsys.readouterr().out.startswith("qualifies:")
    assert check(SUMS / "partners.stan", partners, "--write", written) == 2, "it exists now"
    assert "already exists; use --force" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        pytest.param("normal_lpdf(y[i] |", "normal_lpdf(y[max(i - 1, 1)] |", id="another observation"),
        pytest.param("for (i in 1 : N)", "for (i in 2 : N)", id="one left out"),
        pytest.param("a ~ normal(mean(y), 1);", "", id="no prior"),
    ],
)
def test_a_wrong_form_is_refused(right: str, wrong: str) -> None:
    model, values = compiled("partners")
    [code] = separations(model.program)
    assert isinstance(code, str)
    assert right in code
    with pytest.raises(NotSeparableError, match="changes the log density"):
        check_equal(model, code.replace(right, wrong), values)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(DATA) - {"partners"}))
def test_forms_have_the_same_log_density(name: str) -> None:
    model, values = compiled(name)
    found = reformulate(model, values)
    assert found.proof.points == 5
    assert found.proof.error < 1e-13
