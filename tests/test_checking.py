"""`stansub check` says what it takes as likelihood, what it proved, and what stands in the way."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest

from stansub import checking
from stansub.cli import main
from stansub.run.progress import Display
from stansub.stan.analysis import NO_SIZE, Analysis
from stansub.stan.posterior import Posterior
from stansub.stan.syntax import parse
from stansub.stan.toolchain import stanc
from stansub.target.remainders import NoPredictorsError
from stansub.tuning import mode_tuner

ROOT = Path(__file__).parents[1]
LOGISTIC = ROOT / "stan_models" / "logistic.stan"
PROGRAMS = ROOT / "tests" / "programs"
REACH = ROOT / "benchmarks" / "reach" / "programs"
NO_SUMS = ROOT / "tests" / "stan" / "programs" / "no_sums"
MULTILEVEL = Path(__file__).parents[1] / "benchmarks" / "multilevel" / "programs"


def check(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["check", *map(str, arguments)])
    return int(stopped.value.code or 0)


def write(path: Path, **values: object) -> Path:
    path.write_bytes(orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY))
    return path


@pytest.fixture
def logistic_data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    return write(tmp_path / "data.json", N=203, K=2, y=rng.integers(0, 2, 203), x=rng.standard_normal((203, 2)))


def test_program_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(LOGISTIC) == 5
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "may qualify: its text shows no obstacle; add data for a numerical proof"
    assert "Likelihood    line 15: y ~ bernoulli_logit_glm(x, alpha, beta);" in lines
    assert "Global part   line 13: alpha ~ normal(0, 2.5);" in lines
    assert "Observations  N" in lines
    assert "Parameter     vector[K] beta" in lines
    assert lines[-1].startswith("For a numerical proof, add data")


def test_quiet_hides_progress(logistic_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage_progress, shown = checking.stage_progress, []

    def watched(display: Display) -> Any:
        shown.append(display.show)
        return stage_progress(display)

    monkeypatch.setattr(checking, "stage_progress", watched)
    for arguments in ([], ["--quiet"]):
        assert check(LOGISTIC, logistic_data, *arguments) == 0
    assert shown == [True, False]


# Numbers of claims of each policy, and their sizes.
CLAIMS = """data {
  int N; int M;
  vector[N] x;
  array[N] int claims;
  array[M] int policy;
  vector[M] x_claim;
  vector[M] amount;
}
parameters { real a; real b; real s; }
model {
  a ~ normal(0, 1);
  claims ~ poisson_log(a + b * x);
  for (m in 1 : M) {
    real mu = s + b * x[policy[m]];
    amount[m] ~ normal(mu, 1);
  }
}
"""


@pytest.mark.parametrize(("column", "advises"), [("x[policy[m]]", True), ("x_claim[m]", False)])
def test_advises_columns_for_terms_that_read_rows_of_another_sum(column: str, advises: bool) -> None:
    text = CLAIMS.replace("x[policy[m]]", column)
    posterior = SimpleNamespace(dim=3, blocks=SimpleNamespace(n_observations=600), counts=("M",))
    found = SimpleNamespace(posterior=posterior, source=SimpleNamespace(text=text, analysis=Analysis.of(parse(text))))
    (warning,) = checking._warnings(found, checking._Costs(200e-6, 1e-6, False))
    every = "every step evaluates the global part, which takes as long as 200 blocks: "
    assert warning == every + (
        "line 12: `claims ~ poisson_log(a + b * x);` is in it, because terms of M read rows of x, which N counts; "
        "add the values that they read to the data, as columns of M rows"
        if advises
        else "check whether it computes something from all observations"
    )


DOUBTFUL = """
data { int N; vector[N] y; }
parameters { real mu; real unused; real<lower=0> s; }
model { real half = 1 / 2; mu ~ normal(half, 1e10); s ~ exponential(1); y ~ normal(mu, s); }
"""


@pytest.mark.parametrize("n", [3, 4])
def test_as_many_parameters_as_observations(n: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(1).standard_normal((n, 2))
    data = write(tmp_path / "few.json", N=n, K=2, y=np.arange(n) % 2, x=x)
    assert check(LOGISTIC, data) == 0
    assert ("3 parameters for 3 observations" in capsys.readouterr().out) == (n == 3)


def test_warnings_of_stanc_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "doubtful.stan"
    file.write_text(DOUBTFUL)
    check(file)
    warnings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Stanc warns   ")]
    assert len(warnings) == 3  # in an order that depends on stanc's version
    for text in (
        "line 4: Found int division: 1 / 2 Values will be rounded",
        "line 4: Argument 1e10 suggests",
        "parameter unused was declared but was not used",
    ):
        assert sum(text in one for one in warnings) == 1
    assert [one[:28] for one in stanc.warnings_of(file, pedantic=False)] == ["line 4: Found int division: "]
    assert stanc.warnings_of(tmp_path / "missing.stan", pedantic=True) == ()


def test_priors_that_stanc_does_not_see_are_priors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of several parameters, of transformed ones, and as brms writes them; those of `flat` and `tau` are missing."""
    file = tmp_path / "priors.stan"
    file.write_text("""
data { int N; int J; vector[N] y; array[N] int g; }
parameters {
  real mu; real flat; matrix[2, 2] z; real a; real b; real<lower=0> s; real<lower=0> tau; vector[J] u; real w;
}
transformed parameters {
  real lprior = 0; real log_s = log(s);
  lprior += normal_lpdf(mu | 0, 1);
  lprior += std_normal_lpdf(to_vector(z));
}
model {
  [a, b]' ~ multi_normal(rep_vector(0, 2), identity_matrix(2));
  log_s ~ normal(0, 1);
  target += -log_s;
  u ~ normal(0, tau);
  target += -0.5 * square(w);
  target += normal_lpdf(y - flat | mu + z[1, 2] + a + b * w + u[g], s);
  target += lprior;
}
""")
    check(file)
    warned = [line for line in capsys.readouterr().out.splitlines() if "has no priors" in line]
    assert {line.split("The parameter ")[1].split()[0] for line in warned} == {"flat", "tau"}
    said = [line for line in stanc.warnings_of(file, pedantic=True) if "has no priors" in line]
    assert len(said) > len(warned), "stanc sees them now: nothing is left out any more"


@pytest.mark.parametrize("end", [": ", " to column 49:\n    ", " to line 5, column 3:\n    "])
def test_warnings_of_stanc_end_their_place_as_its_versions_do(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "any.stan").touch()
    text = f"Warning in 'any.stan', line 4, column 45{end}Argument 1e10: too\n    large\nWarning: another\n"
    monkeypatch.setattr(stanc, "_stanc", lambda *given: SimpleNamespace(stderr=text))
    assert stanc.warnings_of(tmp_path / "any.stan", pedantic=True) == ("line 4: Argument 1e10: too large", "another")


def test_functions_of_the_user_give_no_false_warnings() -> None:
    assert stanc.warnings_of(ROOT / "stan_models" / "logistic_reduce_sum.stan", pedantic=True) == ()


def test_functions_that_are_passed_by_any_name_give_no_false_warnings(tmp_path: Path) -> None:
    function = "real part(array[] int y, int start, int end, real a) { return bernoulli_logit_lpmf(y | a); }"
    model = "real q; a ~ normal(q, 1); target += reduce_sum(part, y, 1, a);"
    file = tmp_path / "parts.stan"
    data = "data { int N; array[N] int y; } parameters { real a; }"
    file.write_text(f"functions {{ {function} }} {data} model {{ {model} }}\n")
    (found,) = stanc.warnings_of(file, pedantic=True)
    assert "The variable q may not" in found


def test_with_data(logistic_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(LOGISTIC, logistic_data) == 0
    out = capsys.readouterr().out
    assert out.startswith("qualifies: the likelihood is a sum over blocks, proved numerically for these data\n")
    assert "Observations  203 (N)" in out
    assert "Parameter     vector[K] beta: 2 values" in out
    assert "3 unconstrained parameters in total" in out
    assert "Evaluator     one instance of the program per block" in out
    assert "Blocks        102 of 2 observations, shuffled" in out
    assert "equals the program's log density at 3 points" in out
    assert "Exact         yes (1 argument per observation)" in out
    assert "Warning" not in out


@pytest.mark.parametrize(
    ("few", "says"),
    [(2e8, "yes, from all observations, which are few; bounds on"), (0, "only from all observations: bounds on")],
)
def test_bounds_that_are_too_wide_for_decisions(
    few: float, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, n = np.random.default_rng(1), 400
    x, nu, y = rng.standard_normal(n), rng.standard_normal((n, 8)), rng.integers(0, 2, n)
    data = write(tmp_path / "data.json", N=n, D=8, x=x, nu=nu, y=y)
    monkeypatch.setattr(mode_tuner, "_FEW_EVALUATIONS", few)
    assert check(PROGRAMS.parent / "run" / "programs" / "random_taste.stan", data) == 0
    out = capsys.readouterr().out
    assert f"Exact         {says} the likelihood (3 arguments per observation) are so wide that a decision " in out
    # What decides is how many observations the sampler would pick.
    monkeypatch.setattr(checking, "foreseen_at_mode", lambda *_: 10.0)
    assert check(PROGRAMS.parent / "run" / "programs" / "random_taste.stan", data) == 0
    assert "Exact         yes (3 arguments per observation)\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("few", "begins"), [(2e8, "yes, from all observations, which are few; with more, no"), (0, "no")]
)
def test_exactness_without_bounds(
    few: float, begins: str, logistic_data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object) -> None:
        raise NoPredictorsError("there are no bounds")

    monkeypatch.setattr(Posterior, "predictors", refuse)
    monkeypatch.setattr(mode_tuner, "_FEW_EVALUATIONS", few)
    assert check(LOGISTIC, logistic_data) == 0
    out = capsys.readouterr().out
    assert f"Exact         {begins}: there are no bounds\n" in out
    follows = f"{'':14}a test on some of the observations is approximate; --test exact uses all of them\n"
    assert (follows in out) is (begins == "no")


def test_a_reduce_sum(logistic_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(ROOT / "stan_models" / "logistic_third_derivative.stan", logistic_data) == 0
    out = capsys.readouterr().out
    assert "Observations  203 (N)" in out
    assert "Evaluator     one instance of the program per block" in out


def test_rewritings_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "series.stan"
    file.write_text(
        "data { int N; vector[N] x; vector[N] y; } parameters { real a; real b; real c; real<lower=0> s; } "
        "model { for (n in 2 : N) y[n] ~ normal(a + b * (x[n] - mean(x)) + c * y[n - 1], s); }"
    )
    check(file)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Rewritten")]
    assert lines == [
        "Rewritten     summaries of data in transformed data",
        "Rewritten     data of neighbouring observations as rows of data",
    ]


def likelihood(out: str) -> list[str]:
    return [line.split(": ", 1)[1] for line in out.splitlines() if line.startswith("Likelihood")]


AT_FIRST = "y[1] ~ normal(0, sigma / sqrt(1 - square(rho)));"


@pytest.mark.parametrize(
    ("name", "statements"),
    [
        ("mixture", ["target += log_sum_exp(terms);"]),
        ("brms_gaussian", ["target += normal_id_glm_lpdf(Y | Xc, mu, b, sigma);"]),
        ("groups", ["count[t] ~ poisson_log(alpha[t] + eta);"]),
        ("multivariate", ["y ~ multi_normal(mu, Sigma);", "z ~ multi_normal_cholesky(mu, L);"]),
        ("varying_dispersion", ["y[n] ~ normal(mu, scale_at(mu, a, b));"]),
        ("autoregression", [AT_FIRST, "target += log_lik_i(t, y, rho, sigma);"]),
        (
            "survival",
            [
                "t_obs ~ weibull(shape, scale_obs);",
                "target += weibull_lccdf(t_cen | shape, scale);",
                "target += weibull_lcdf(t_left[n] | shape, scale[n]);",
            ],
        ),
    ],
)
def test_likelihood_is_told_from_priors(name: str, statements: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert check(PROGRAMS / f"{name}.stan") == 5
    assert likelihood(capsys.readouterr().out) == statements


def test_terms_that_observations_decide_are_likelihood(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "zero_inflated.stan"
    file.write_text("""
data { int N; array[N] int y; }
parameters { real<lower=0, upper=1> p; real eta; }
model {
  eta ~ normal(0, 1);
  for (n in 1 : N) {
    if (y[n] > 0) {
      target += log1m(p);
    }
    target += poisson_log_lpmf(0 | eta);
  }
}""")
    assert check(file) == 5
    out = capsys.readouterr().out
    assert likelihood(out) == ["target += log1m(p);", "target += poisson_log_lpmf(0 | eta);"]
    assert "Global part   line 5: eta ~ normal(0, 1);" in out


def test_obstacles_are_told_without_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(REACH / "relative_exposure.stan") == 5
    assert re.search(r"Warning: line \d+: `exposure = .*` depends on a value computed", capsys.readouterr().out)
    for name in ("centred", "centred_prior"):
        assert check(PROGRAMS / f"{name}.stan") == 5
        assert "Warning" not in capsys.readouterr().out


def test_what_need_not_be_rewritten_is_not_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A recursion within each row is no obstacle."""
    file = tmp_path / "states.stan"
    file.write_text(
        "data { int N; int T; array[N, T] int y; array[N] int f; } parameters { real<lower=0, upper=1> p; } "
        "model { vector[T] g; for (n in 1 : N) { g[f[n]] = p; "
        "for (t in f[n] + 1 : T) { g[t] = g[t - 1] * p; y[n, t] ~ bernoulli(g[t]); } } }"
    )
    assert check(file) == 5
    out = capsys.readouterr().out
    assert out.startswith("may qualify: its text shows no obstacle")
    assert "Not rewritten" not in out


def test_what_is_no_sum_is_named_without_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(NO_SUMS / "gaussian_process.stan") == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "will not qualify: a Gaussian process; its covariance couples all observations"
    assert lines[1] == "Shown by      line 17: matrix[N, N] K = gp_exp_quad_cov(x, alpha, rho);"
    assert not any(line.startswith("Proposals") for line in lines)


def test_proposals_for_products_of_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(MULTILEVEL / "item_response.stan") == 5
    out = capsys.readouterr().out
    assert "Proposals     Metropolis within Gibbs with more than 50 parameters, because" in out
    assert "surrogate transitions if these are not normal given the other parameters" in out
    assert check(MULTILEVEL / "crossed.stan") == 5
    assert "Proposals     surrogate transitions" in capsys.readouterr().out


@pytest.mark.slow
def test_proposals_for_missing_values_with_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are listed, so that the data are cut in another program than the one that is split in two."""
    n, missing = 300, np.arange(1, 240, 4)
    x, w, y = np.random.default_rng(1).standard_normal((3, n))
    sizes = {"N": n, "N_x": n, "n_missing": len(missing)}
    file = write(tmp_path / "missing.json", **sizes, y=y, x=x, w=w, missing=missing)
    assert check(ROOT / "tests" / "run" / "programs" / "missing_covariate.stan", file) == 0
    assert "Proposals     surrogate transitions, because x_missing" in capsys.readouterr().out


@pytest.mark.slow
def test_proposals_for_products_of_parameters_with_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(1)
    sizes, item, person = {"N": 1200, "I": 20, "P": 60}, np.arange(1200) % 20, np.arange(1200) // 20
    answers = {"y": rng.integers(0, 2, 1200), "item": item + 1, "person": person + 1}
    assert check(MULTILEVEL / "item_response.stan", write(tmp_path / "answers.json", **sizes, **answers)) == 0
    out = capsys.readouterr().out
    assert "Proposals     Metropolis within Gibbs, because" in out
    assert "Exact         yes" in out


def test_nothing_that_counts_observations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "one.stan"
    file.write_text("data { vector[9] y; } parameters { real mu; } model { y ~ normal(mu, 1); }")
    assert check(file) == 5
    assert "nothing counts observations; add data" in capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize(
    ("code", "code_of_exit"),
    [
        ("parameters { real mu; } model { mu ~ normal(0, 1); }", 2),
        ("parameters { real<lower=0, upper=1> p; } model { }", 2),
        ("data { int N; vector[N] y; real s; } parameters { real mu; } model { mu ~ normal(0, s); }", 2),
        ("data { int N; int K; vector[N] y; } "
         "parameters { vector[K] b; } model { for (k in 1:K) b[k] ~ normal(0, 1); }", 2),
        ("data { int N; vector[N] y; } parameters { real mu; } model { for (n in 1:N) target += -mu ^ 2; }", 5),
        ("data { int N; vector[N] y; } transformed data { real m = mean(y); } "
         "parameters { real mu; } model { mu ~ normal(m, 1); }", 5),
        ("functions { real f_lp(real a, vector y) { y ~ normal(a, 1); return a; } } data { int N; vector[N] y; } "
         "parameters { real mu; } transformed parameters { real b = f_lp(mu, y); } model { mu ~ normal(0, 1); }", 5),
    ],
)  # fmt: skip
def test_no_term_for_each_observation(
    code: str, code_of_exit: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "prior.stan"
    file.write_text(code)
    assert check(file) == code_of_exit
    out = capsys.readouterr().out
    message = "will not qualify: no statement of the model block adds a term for each observation"
    assert out.startswith(message) == ("add data" not in out) == (code_of_exit == 2)


@pytest.mark.slow
def test_data_without_a_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "prior.stan"
    file.write_text("data { int N; } parameters { vector[N] z; } model { z ~ normal(0, 1); }")
    assert check(file, write(tmp_path / "size.json", N=10)) == 2
    out = capsys.readouterr().out
    assert out.startswith("will not qualify: no statement of the model block adds a term for each observation")
    assert f"Reason        {NO_SIZE}\n" in out
    assert "add data" not in out


@pytest.mark.slow
def test_program_that_does_not_qualify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write(tmp_path / "counts.json", N=40, y=np.random.default_rng(1).integers(0, 5, 40))
    assert check(PROGRAMS / "one_each.stan", data) == 2
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0].startswith("will not qualify: a model with a parameter for each observation")
    assert lines[1] == "Shown by      line 9: vector[N] z;"
    assert lines[2] == "Reason        no sum over N: the number of parameters depends on it"
    assert "Traceback" not in captured.err


def test_a_program_in_todays_syntax_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "written.stan"
    assert check(LOGISTIC, "--write", file) == 5
    assert "\nNothing written: the program is in current syntax.\n" in capsys.readouterr().out
    assert not file.exists()


def test_data_are_read_before_anything_is_compiled(
    tmp_path: Path, own_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write(tmp_path / "short.json", N=3, K=1, y=[0, 1], x=[[0], [1], [2]])
    assert check(LOGISTIC, data) == 2
    assert "'y' has 2 elements in dimension 1" in capsys.readouterr().err
    assert not (own_cache / "libraries").exists()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("model { y ~ normal(0, 1); }", "identifier 'y' not in scope"),
        ("data { int N; }", "no model block"),
    ],
)
def test_invalid_programs(code: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "invalid.stan"
    file.write_text(code)
    assert check(file) == 2
    assert message in capsys.readouterr().err.lower().replace('"', "'")


def test_missing_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path / "absent.stan") == 2
    assert check(LOGISTIC, tmp_path / "absent.json") == 2
    assert capsys.readouterr().err.count("no such file") == 2
