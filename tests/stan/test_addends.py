"""Sums in one statement: which are written as several, and that the log density stays the same."""

import numpy as np
import pytest
from evaluate import log_density
from texts import canonical

from stansub.stan.parts import divide
from stansub.stan.passes.addends import term_by_term
from stansub.stan.syntax import Program

DATA = "data { int N; vector[N] y; vector[N] w; } transformed data { vector[N] z = y - mean(y); }"
LIKELIHOOD = "normal_lpdf(z | m, s)"
PRIOR = "normal_lpdf(m | 0, 1)"


def read(model: str, data: str = DATA) -> Program:
    code = f"{data} parameters {{ real m; real<lower=0> s; }} model {{ {model} }}"
    return canonical(code)


@pytest.mark.parametrize(
    ("expression", "terms"),
    [
        (f"{LIKELIHOOD} + {PRIOR}", [LIKELIHOOD, PRIOR]),
        (f"{PRIOR} - (s - 2 * {LIKELIHOOD})", [PRIOR, "-s", f"2 * {LIKELIHOOD}"]),
        (f"-({LIKELIHOOD} - s)", [f"-{LIKELIHOOD}", "s"]),
    ],
)
def test_terms_are_statements(expression: str, terms: list[str]) -> None:
    program = read(f"target += {expression};")
    found = term_by_term(program)
    assert isinstance(found, Program)
    assert [str(one) for one in found.model.statements] == [f"target += {term};" for term in terms]
    data = {"N": 4, "y": np.array([0.3, -1.0, 2.0, 0.1]), "w": np.ones(4)}
    values = {"m": 0.4, "s": 0.7}
    assert log_density(found, data, values) == pytest.approx(log_density(program, data, values), rel=1e-12)
    assert divide(found) is not None


@pytest.mark.parametrize(
    "expression",
    [
        f"{LIKELIHOOD} + sum(w)",  # both of all observations
        f"{PRIOR} + s",  # neither
        "z + m",  # m for each observation
        LIKELIHOOD,
    ],
)
def test_other_sums_stay(expression: str) -> None:
    assert term_by_term(read(f"target += {expression};")) is None


def test_programs_without_transformed_data_stay() -> None:
    program = read(f"target += normal_lpdf(y | m, s) + {PRIOR};", "data { int N; vector[N] y; }")
    assert term_by_term(program) is None
