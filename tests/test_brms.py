"""Programs that brms writes with `threading()`, sampled and compared with glm; needs R with brms and rstan."""

from __future__ import annotations

import csv
import subprocess
from pathlib import Path

import pytest
from rscript import lacks_r

from stansub import cli
from stansub.output import inference_data, statistics

WRITTEN = """
suppressMessages(library(brms))
set.seed(1)
d <- data.frame(x1 = rnorm(20000), x2 = rnorm(20000))
d$y <- rbinom(20000, 1, plogis(-1 + d$x1 - 0.5 * d$x2))
model <- list(y ~ x1 + x2, data = d, family = bernoulli(), threads = threading(2))
writeLines(do.call(make_stancode, model), "brms.stan")
data <- do.call(make_standata, model)
rstan::stan_rdump(names(data), "data.R", envir = list2env(unclass(data)))
write.csv(summary(glm(y ~ x1 + x2, binomial, d))$coefficients[, 1:2], "glm.csv")
"""


@pytest.mark.slow
def test_a_program_with_threading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := lacks_r():
        pytest.skip(reason)
    monkeypatch.chdir(tmp_path)
    subprocess.run(["Rscript", "-e", WRITTEN], check=True, capture_output=True)
    assert "reduce_sum(partial_log_lik" in Path("brms.stan").read_text(encoding="utf-8")
    for command in (
        ["check", "brms.stan", "data.R", "--write", "model.stan"],
        ["sample", "model.stan", "data.R", "--seed", "1", "--quiet"],
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main(command)
        assert ended.value.code == 0
    found = statistics.table(inference_data.read("model.nc"))
    with Path("glm.csv").open(encoding="utf-8") as file:
        expected = {row[""]: (float(row["Estimate"]), float(row["Std. Error"])) for row in csv.DictReader(file)}
    for name, of_glm in {"b_Intercept": "(Intercept)", "b[1]": "x1", "b[2]": "x2"}.items():
        estimate, error = expected[of_glm]
        assert found["mean"][name] == pytest.approx(estimate, abs=0.2 * error)  # priors hardly matter to 20,000 rows
        assert found["sd"][name] == pytest.approx(error, rel=0.1)
