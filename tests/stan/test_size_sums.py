"""Data whose size is computed from several integers: the rows that are written, and which programs are left alone."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from simulated import Data
from test_identity import check_identity, points
from texts import canonical, words

import stansub
from stansub.cli import main
from stansub.stan.analysis import Analysis
from stansub.stan.passes.computed_sizes import with_size_sums
from stansub.stan.passes.series.rows import N_ROWS
from stansub.stan.syntax import Program

CODE = """
data {{
  int N_obs; int N_mis; array[N_obs] int at; array[N_mis] int gone; vector[N_obs] x_obs;
  vector[N_obs + N_mis] z; array[N_obs + N_mis] int y; {declared}
}}
transformed data {{ int N = N_obs + N_mis; {computed} }}
parameters {{ real a; vector[N_mis] x_mis; {parameters} }}
transformed parameters {{ vector[N] x; x[at] = x_obs; x[gone] = x_mis; }}
model {{ a ~ normal(0, 1); x ~ normal(0, 1); {model} }}
"""
MODEL = "y ~ poisson_log(a + x + z);"


def read(*, declared: str = "", computed: str = "", parameters: str = "", model: str = MODEL) -> Program:
    return canonical(CODE.format(declared=declared, computed=computed, parameters=parameters, model=model))


def written(program: Program) -> str:
    found = with_size_sums(program)
    assert isinstance(found, Program)
    return words(found.code)


def test_data_with_the_size_of_the_outcome_are_rows() -> None:
    text = written(read(model="vector[N_obs + N_mis] mu = a + x + z; y ~ poisson_log(mu);"))
    rows = f"int {N_ROWS} = N_obs + N_mis; vector[{N_ROWS}] stansub_copy_1 = z; array[{N_ROWS}] int stansub_copy_2 = y;"
    assert words(rows) in text
    assert words(f"vector[{N_ROWS}] x;") in text
    assert words(f"vector[{N_ROWS}] mu = a + x + stansub_copy_1; stansub_copy_2 ~ poisson_log(mu);") in text


def test_loops_over_them_and_transformed_data_are_over_rows() -> None:
    text = written(read(computed="vector[N] w = 2 * z;", model="for (n in 1:N) y[n] ~ poisson_log(a + x[n] + w[n]);"))
    assert words(f"vector[{N_ROWS}] stansub_copy_2 = w;") in text
    assert words(f"for (n in 1:{N_ROWS}) {{ stansub_copy_1[n] ~ poisson_log(a + x[n] + stansub_copy_2[n]); }}") in text


@pytest.mark.parametrize(
    "program",
    [
        read(model="at ~ poisson_log(a);"),
        read(model=f"{MODEL} x_obs ~ normal(a, 1);"),
        read(parameters="vector[N_obs + N_mis] u;"),
        read(declared="vector[N_obs + 1] v;", model="v ~ normal(a, 1);"),
        read(declared=f"real {N_ROWS};"),
        read(model="z[2 : N] ~ normal(a, 1);"),
    ],
)
def test_other_programs_are_left_alone(program: Program) -> None:
    assert with_size_sums(program) is None


def test_an_integer_that_changes_is_another() -> None:
    program = read(
        computed="int n = N_obs + N_mis; n -= 1;", model=f"vector[n] u = rep_vector(a, n); u ~ normal(0, 1); {MODEL}"
    )
    assert words("vector[n] u = rep_vector(a, n);") in written(program)


def test_the_likelihood_has_a_surrogate_over_rows() -> None:
    analysis = Analysis.of(read())
    assert analysis.counted == N_ROWS
    assert analysis.hints().selected == ("x_mis",)
    assert words(f"vector[{N_ROWS}] x;") in words(analysis.likelihood_split().likelihood.code)


@pytest.mark.slow
def test_the_sum_is_proved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, rng, gone = tmp_path / "sum.stan", np.random.default_rng(1), np.array([3, 17, 40])
    path.write_text(read().code)
    at = np.setdiff1d(np.arange(1, 61), gone)
    data: Data = {"N_obs": len(at), "N_mis": len(gone), "at": at, "gone": gone, "x_obs": rng.normal(size=len(at))}
    data |= {"z": rng.normal(size=60), "y": rng.poisson(2, 60)}
    model = stansub.compile_model(path)
    posterior = model.with_data(data, block_size=7, seed=3)
    assert posterior.blocks.n_observations == 60
    assert posterior.counts == ("N_obs + N_mis",)
    assert len(points(posterior, 1)[0]) == 4
    check_identity(posterior, model, data)
    file = tmp_path / "sum.json"
    file.write_text(json.dumps(data, default=lambda value: value.tolist()))
    with pytest.raises(SystemExit) as stopped:
        main(["check", str(path), str(file)])
    assert not stopped.value.code
    out = capsys.readouterr().out
    assert re.search(r"Observations +60 \(N_obs \+ N_mis\)", out)
    likelihood = re.findall(r"^Likelihood +line \d+: (\w)", out, re.MULTILINE)
    assert likelihood == ["x", "y"]
