"""Surrogate transitions without being asked for: where they are taken, where not, and what is said of it."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from agreement import z_scores
from drawn import unconstrained
from scipy.special import expit

import stansub
from stansub import CompiledModel, InputError
from stansub.cli import main
from stansub.findings import HighRHat
from stansub.output import inference_data
from stansub.output.summary import summarise, table
from stansub.progress import Progress
from stansub.run import transitions
from stansub.run.config import SampleConfig
from stansub.run.posteriors import read
from stansub.selection import StepCost, TransitionsLeft
from stansub.target import cholesky
from stansub.target.remainders import NoPredictorsError
from stansub.tuning import about_mode
from stansub.tuning.transitions import Trial

PROGRAMS = Path(__file__).parent / "programs"
QUIET: dict[str, Any] = {"seed": 3, "chains": 2, "show_progress": False}


def crossed(n: int = 300, j: int = 6, k: int = 9) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    x, g, h = rng.standard_normal(n), rng.integers(j, size=n), rng.integers(k, size=n)
    eta = -0.4 + 0.5 * x + 0.6 * rng.standard_normal(j)[g] + 0.4 * rng.standard_normal(k)[h]
    return {"N": n, "J": j, "K": k, "y": (rng.random(n) < expit(eta)).astype(int), "x": x, "g": g + 1, "h": h + 1}


def means(n: int = 4000, j: int = 40) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    group = rng.integers(j, size=n)
    return {"J": j, "N": n, "y": rng.standard_normal(j)[group] + rng.standard_normal(n), "group": group + 1}


def random_taste(n: int = 400, d: int = 8) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    x, nu = rng.standard_normal(n), rng.standard_normal((n, d))
    y = rng.random(n) < expit(-0.3 + (0.8 + 0.3 * rng.standard_normal(n)) * x)
    return {"N": n, "D": d, "x": x, "y": y.astype(int), "nu": nu}


def run(command: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 0


@pytest.fixture(scope="module")
def multilevel() -> CompiledModel:
    return stansub.compile_model(PROGRAMS / "multilevel.stan")


@pytest.fixture(scope="module")
def centred() -> CompiledModel:
    return stansub.compile_model(PROGRAMS / "centred_effects.stan")


@pytest.fixture(scope="module")
def by_default(multilevel: CompiledModel) -> Any:
    """Draws of the multilevel model without options, for all tests that need them."""
    return stansub.sample(multilevel, crossed(), **QUIET)


def test_they_are_taken_for_effects_far_from_normal(multilevel: CompiledModel, by_default: Any, tmp_path: Path) -> None:
    data, idata = crossed(), by_default
    facts = inference_data.attrs(idata)
    assert idata.posterior.sizes["draw"] == 1000
    assert facts["asked"]["proposal"] == "auto"
    assert facts["settings"]["proposal"] == "surrogate"
    assert "effects with an unknown scale (z and v) among 19 parameters" in facts["choices"]["proposal"]
    assert set(facts["programs"]) == {"program", "surrogate"}
    assert facts["guarantee"] == "exact"
    assert facts["choices"]["test"].startswith("exact, from all observations: a test on some would draw about ")
    asked = stansub.sample(multilevel, data, proposal="surrogate", **QUIET)
    np.testing.assert_array_equal(unconstrained(idata), unconstrained(asked))
    by_test = stansub.sample(multilevel, data, proposal="surrogate", test="exact", iter_sampling=10, **QUIET)
    assert inference_data.attrs(by_test)["choices"]["test"] == "exact, from all observations: as requested"
    # Decisions on all the data do not change the moves.
    exact = stansub.sample(multilevel, data, test="exact", iter_sampling=10, **QUIET)
    np.testing.assert_array_equal(unconstrained(exact), unconstrained(by_test))
    # Numbers of steps that were not given are those of the run that goes on.
    file = tmp_path / "run.checkpoint"
    stansub.sample(multilevel, data, checkpoint=file, iter_sampling=100, **QUIET)
    resumed = stansub.sample(multilevel, data, resume=file, **QUIET)
    np.testing.assert_array_equal(unconstrained(resumed), unconstrained(idata)[:, :100])


def test_effects_in_parts_have_the_same_posterior(multilevel: CompiledModel, monkeypatch: pytest.MonkeyPatch) -> None:
    data = crossed(3000, 12, 15)
    whole = stansub.sample(multilevel, data, **QUIET)
    monkeypatch.setattr(cholesky, "_DEAR", 0.0)
    apart = stansub.sample(multilevel, data, **QUIET)
    assert "Gibbs" in inference_data.attrs(apart)["choices"]["surrogate"]
    one, other = table(whole), table(apart)
    assert other["ess_bulk"].min() > 400
    for name in ("mean", "sd"):
        errors = np.hypot(one[f"mcse_{name}"], other[f"mcse_{name}"])
        assert (np.abs(one[name] - other[name]) / errors).max() < 4


def test_moves_about_the_mode_stay_where_the_posterior_is_near_to_normal(
    centred: CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, short = means(), {"iter_warmup": 300, "iter_sampling": 200}
    idata = stansub.sample(centred, data, **QUIET, **short)
    choices = inference_data.attrs(idata)["choices"]
    assert "nearly normal" in choices["surrogate transitions"]
    monkeypatch.setattr(transitions, "find", lambda *_: None)
    np.testing.assert_array_equal(unconstrained(idata), unconstrained(stansub.sample(centred, data, **QUIET, **short)))


@pytest.fixture(scope="module")
def skewed() -> CompiledModel:
    return stansub.compile_model(PROGRAMS / "random_taste.stan")


@pytest.fixture(scope="module")
def on_grid() -> Any:
    """Independent draws from the posterior of `random_taste.stan` on the nodes of a quadrature."""
    data, (nodes, weights) = random_taste(), np.polynomial.legendre.leggauss(20)
    x, nu, sign = data["x"][:, np.newaxis], data["nu"], 2 * data["y"][:, np.newaxis] - 1
    axes = [middle + half * nodes for middle, half in ((-0.35, 0.7), (1.0, 0.9), (0.8, 0.8))]
    points = np.array(np.meshgrid(*axes, indexing="ij")).reshape(3, -1).T
    logs = np.log(np.einsum("i,j,k->ijk", *[weights] * 3)).ravel() - points**2 @ [1 / 8, 1 / 8, 1 / 2]
    for k, (a, b, sigma) in enumerate(points):
        logs[k] += np.log(expit(sign * (a + (b + sigma * nu) * x)).mean(axis=1)).sum()
    mass = np.exp(logs - logs.max())
    drawn = np.random.default_rng(2).choice(points, (4, 10_000), p=mass / mass.sum())
    return SimpleNamespace(posterior={name: drawn[..., k] for k, name in enumerate(("a", "b", "sigma"))})


def test_they_replace_moves_about_the_mode_of_a_posterior_far_from_normal(
    skewed: CompiledModel, on_grid: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds are known, but too wide for decisions, and moves about the mode stay where sigma is near 0."""
    idata = stansub.sample(skewed, random_taste(), **QUIET)
    facts = inference_data.attrs(idata)
    assert facts["settings"]["proposal"] == "surrogate"
    assert facts["guarantee"] == "exact"
    assert "the posterior is far from normal (" in facts["choices"]["proposal"]
    assert idata.posterior.sizes["draw"] == 1000
    assert max(z_scores(idata, on_grid, ["a", "b", "sigma"])) < 4.5
    assert max(z_scores(idata, on_grid, ["a", "b", "sigma"], wider=1.3)) > 4.5
    monkeypatch.setattr(transitions, "NEAR_NORMAL", 0.0)
    short = {"iter_warmup": 100, "iter_sampling": 100}
    near = inference_data.attrs(stansub.sample(skewed, random_taste(), **short, **QUIET))
    assert near["settings"]["proposal"] != "surrogate"
    assert near["choices"]["bounds"].startswith("known, but wide: ")


def test_trajectories_about_the_mode_replace_them_if_there_is_no_surrogate(
    skewed: CompiledModel, on_grid: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(transitions, "instead", lambda *_: None)
    short = {"iter_warmup": 100, "iter_sampling": 100}
    dear = inference_data.attrs(stansub.sample(skewed, random_taste(), **short, **QUIET))
    assert dear["settings"]["proposal"] != "nuts"
    monkeypatch.setattr(about_mode, "_GRADIENT", 0.01)
    file = tmp_path / "run.checkpoint"
    idata = stansub.sample(skewed, random_taste(), checkpoint=file, **QUIET)
    facts = inference_data.attrs(idata)
    assert facts["settings"]["proposal"] == "nuts"
    assert facts["guarantee"] == "exact"
    assert facts["choices"]["proposal"].startswith("NUTS on the posterior itself, ")
    assert max(z_scores(idata, on_grid, ["a", "b", "sigma"])) < 4.5
    stansub.sample(skewed, random_taste(), checkpoint=file, iter_sampling=100, **QUIET)
    resumed = stansub.sample(skewed, random_taste(), resume=file, **QUIET)
    np.testing.assert_array_equal(unconstrained(resumed), unconstrained(idata)[:, :100])


CENSORED = """
data { int N; int M; vector[N] y; real C; }
parameters { vector<lower=C>[M] z; real mu; real<lower=0> sigma; }
model { y ~ normal(mu, sigma); z ~ normal(mu, sigma); mu ~ normal(0, 10); sigma ~ normal(0, 10); }
"""


def test_trajectories_about_the_mode_start_at_their_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Values dispersed about the mode had censored values 20 sds above it, where no proposal was accepted."""
    monkeypatch.setattr(transitions, "instead", lambda *_: None)
    monkeypatch.setattr(transitions, "_LONG", 0.0)
    program, y = tmp_path / "censored.stan", np.random.default_rng(1).standard_normal(1000)
    program.write_text(CENSORED)
    seen = y[y < 1]
    data = {"N": len(seen), "M": len(y) - len(seen), "y": seen, "C": 1.0}
    idata = stansub.sample(program, data, iter_sampling=300, **QUIET)
    assert inference_data.attrs(idata)["settings"]["proposal"] == "nuts"
    assert min(idata.sample_stats["accepted"].mean("draw")) > 0.9
    cost = inference_data.attrs(idata)["choice_values"]["cost of a step"]
    assert f": 1,000 steps of {StepCost(cost['gradients'], cost['seconds']).describe()}." in capsys.readouterr().err


WEIGHTS = """
data { int N; int J; array[N] int g; vector[N] y; vector[N] x; }
parameters {
  real mu; real slope; real<lower=0> tau; real<lower=0> omega; real<lower=0> sigma; vector[J] a; vector[J] b;
}
model {
  mu ~ normal(0, 300); slope ~ normal(0, 20); tau ~ normal(0, 30); omega ~ normal(0, 3); sigma ~ normal(0, 30);
  a ~ normal(mu, tau); b ~ normal(slope, omega);
  for (n in 1:N) y[n] ~ normal(a[g[n]] + b[g[n]] * x[n], sigma);
}
"""


def test_effects_about_a_mean_far_from_0_have_a_surrogate(tmp_path: Path) -> None:
    """No expansion led to the posterior of weights in grams, and trajectories on it took minutes to approach it."""
    program, rng, n, j = tmp_path / "weights.stan", np.random.default_rng(2), 2000, 50
    program.write_text(WEIGHTS)
    g, x = rng.integers(j, size=n), rng.uniform(-5, 5, n)
    a, b = 240 + 14 * rng.standard_normal(j), 6 + 0.5 * rng.standard_normal(j)
    data = {"N": n, "J": j, "g": g + 1, "x": x, "y": a[g] + b[g] * x + 6 * rng.standard_normal(n)}
    idata = stansub.sample(program, data, iter_sampling=300, **QUIET)
    assert inference_data.attrs(idata)["choices"]["proposal"].startswith("surrogate transitions: ")
    assert idata.posterior["mu"].mean().item() == pytest.approx(240, abs=10)
    assert idata.posterior["sigma"].mean().item() == pytest.approx(6, abs=0.5)


@pytest.fixture(scope="module")
def within(tmp_path_factory: pytest.TempPathFactory) -> CompiledModel:
    """The multilevel model, with sigma z in the likelihood, and tau v declared, where tau has no bound."""
    text = (PROGRAMS / "multilevel.stan").read_text()
    text = text.replace("vector[J] u = sigma * z;", "vector[K] w = tau * v;").replace("u[g[n]]", "sigma * z[g[n]]")
    text = text.replace("real<lower=0> tau", "real tau").replace("v ~ normal(0, tau)", "v ~ std_normal()")
    file = tmp_path_factory.mktemp("programs") / "within.stan"
    file.write_text(text.replace("v[h[n]]", "w[h[n]]"))
    return stansub.compile_model(file)


def test_scales_may_multiply_effects_within_the_likelihood(within: CompiledModel, by_default: Any) -> None:
    """Scale and effects apart are not determined by the likelihood: transitions hardly moved."""
    found = stansub.sample(within, crossed(), **QUIET)
    facts = inference_data.attrs(found)
    assert "effects with an unknown scale (z and v) among 19 parameters" in facts["choices"]["proposal"]
    draws = found.posterior
    found = SimpleNamespace(posterior=draws.assign(tau=np.abs(draws["tau"]), v=draws["w"]))
    assert max(z_scores(found, by_default, ["sigma", "tau", "z", "v"])) < 4.5


def test_chains_start_on_both_sides_of_a_scale_without_a_bound(within: CompiledModel) -> None:
    """All draws had the sign of the surrogate's, R-hat was 1.00, and the draws passed as converged."""
    idata = stansub.sample(within, crossed(n=3000), proposal="surrogate", iter_sampling=200, **QUIET)
    assert np.sign(idata.posterior["tau"]).mean("draw").values.tolist() in ([1, -1], [-1, 1])
    assert "the same if tau and v change their signs" in inference_data.attrs(idata)["choices"]["signs"]
    (r_hat,) = (one for one in summarise(idata).findings if isinstance(one, HighRHat))
    assert r_hat.describe().remedy.startswith("Fix the sign of tau,")


@pytest.mark.slow
def test_they_are_left_where_the_user_asks_for_what_they_have_not(multilevel: CompiledModel) -> None:
    idata = stansub.sample(multilevel, crossed(), test="pocock", iter_warmup=50, iter_sampling=50, **QUIET)
    assert "surrogate" not in inference_data.attrs(idata)["choices"]


def test_data_that_make_no_sense_are_explained_as_ever(multilevel: CompiledModel) -> None:
    data = crossed()
    with pytest.raises(InputError, match="no observations"):
        stansub.sample(multilevel, data | {"N": 0, "y": [], "x": [], "g": [], "h": []}, **QUIET)
    with pytest.raises(InputError, match="observation 4 of the data"):
        stansub.sample(multilevel, data | {"x": np.where(np.arange(300) == 3, np.nan, data["x"])}, **QUIET)


def test_chains_that_would_hardly_move_are_warned_of_or_left_to_nuts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(transitions, "tried", lambda _, tuned, *__, **___: Trial(tuned, 0.02))
    monkeypatch.setattr(transitions, "MANY", 10)
    data, output = tmp_path / "data.json", tmp_path / "draws.nc"
    data.write_text(json.dumps({name: np.asarray(value).tolist() for name, value in crossed().items()}))
    command = ["sample", str(PROGRAMS / "multilevel.stan"), str(data), "--seed", "1", "--chains", "2", "--quiet"]
    command += ["--iter-warmup", "100", "--iter-sampling", "100", "--output", str(output)]
    run(command)
    assert "Warning: the chains will hardly move." in capsys.readouterr().err
    run([*command, "--force", "--fallback", "nuts", "--verbose"])
    shown = capsys.readouterr()
    assert "Using NUTS instead, because the chains would hardly move." in shown.err
    assert "2 % of the trial transitions were accepted" in " ".join(shown.out.split())
    facts = inference_data.attrs(stansub.read_draws(output))
    assert facts["method"] == "NUTS"
    assert facts["fallback"].startswith("NUTS instead of")


def test_why_they_are_not_used_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without effects of unknown scale, too: `check` has named surrogate transitions."""
    program = tmp_path / "levels.stan"
    program.write_text(LEVELS)
    data = {"N": 120, "J": 60, "g": np.arange(120) % 60 + 1, "x": np.ones(120), "y": np.arange(120) % 2}
    given = read(program, data, Progress())
    predictors = SimpleNamespace(family=SimpleNamespace(is_known=False))
    posterior = SimpleNamespace(analysis=given.analysis, dim=61, split=lambda _: SimpleNamespace(predictors=predictors))
    monkeypatch.setattr(transitions, "multiplies", lambda _: False)
    monkeypatch.setattr(transitions, "tune", lambda *_: SimpleNamespace(diverging=0.3, others=()))
    monkeypatch.setattr(transitions, "tried", lambda _, tuned, *__, **___: Trial(tuned, 0.02))

    def found(split: Any) -> TransitionsLeft:
        monkeypatch.setattr(transitions, "_split", split)
        left = transitions.find(given, SampleConfig(seed=1), Progress())
        assert isinstance(left, TransitionsLeft)
        assert not left.hardly_moves
        return left

    def refused(*_: Any, **__: Any) -> Any:
        raise NoPredictorsError("the likelihood cannot be followed")

    few_read = "not used, although an observation reads few of the 61 parameters"
    assert found(refused).describe() == f"{few_read}: the likelihood cannot be followed"
    tried = found(lambda *_, **__: (posterior, 0.0))
    assert tried.describe() == f"{few_read}: 2 % of the trial transitions were accepted, and 30 % diverged"
    monkeypatch.setattr(transitions, "tune", lambda *_: SimpleNamespace(diverging=0.0, others=("another mode",)))
    monkeypatch.setattr(transitions, "_without_copies", lambda _, tuned: (tuned, ()))
    small = SimpleNamespace(**vars(posterior) | {"dim": 20})
    several = found(lambda *_, **__: (small, 0.0))
    assert (
        several.describe()
        == "not used, although an observation reads few of the 20 parameters: the posterior has several modes"
    )


LEVELS = """
data { int N; int J; array[N] int<lower=1, upper=J> g; vector[N] x; array[N] int<lower=0, upper=1> y; }
parameters { real b; vector[J] u; }
model { b ~ normal(0, 1); u ~ normal(0, 1.5); y ~ bernoulli_logit(b * x + u[g]); }
"""


@pytest.mark.slow
def test_they_are_taken_for_many_levels_of_known_scale(tmp_path: Path) -> None:
    rng, n, j = np.random.default_rng(7), 4000, 100
    x, g = rng.standard_normal(n), rng.integers(j, size=n)
    y = (rng.random(n) < expit(0.5 * x + rng.standard_normal(j)[g])).astype(int)
    data, program = {"N": n, "J": j, "g": g + 1, "x": x, "y": y}, tmp_path / "levels.stan"
    program.write_text(LEVELS)
    idata = stansub.sample(program, data, seed=3, iter_sampling=4_000, show_progress=False)
    facts = inference_data.attrs(idata)
    assert facts["settings"]["proposal"] == "surrogate"
    assert "an observation reads few of the 101 parameters" in facts["choices"]["proposal"]
    nuts = stansub.reference(program, data, engine="nutpie", seed=4, iter_sampling=4_000, show_progress=False)
    assert max(z_scores(idata, nuts, ["b", "u"])) < 4.5
    assert max(z_scores(idata, nuts, ["b", "u"], wider=1.1)) > 6


FACTORS = """
data { int N; int G; array[N] int<lower=1, upper=G> g; array[N] vector[4] y; }
parameters {
  vector[4] nu; vector[3] loading; vector<lower=0>[4] psi; real<lower=0> sd_f; vector[G - 1] mean_f;
  simplex[2] share;
}
transformed parameters {
  vector[4] lambda = append_row(1, loading);
  matrix[4, 4] S = add_diag(square(sd_f) * lambda * lambda', square(psi));
  array[G] vector[4] mu;
  mu[1] = nu;
  for (k in 2:G) mu[k] = nu + lambda * mean_f[k - 1];
}
model {
  nu ~ normal(0, 5);
  loading ~ normal(1, 1);
  psi ~ normal(0, 2);
  sd_f ~ normal(0, 2);
  mean_f ~ normal(0, 1);
  for (n in 1:N) y[n] ~ multi_normal(mu[g[n]], S);
}
"""


@pytest.mark.slow
def test_chains_about_a_nearly_normal_mode_are_not_warned_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Loadings times factor means look like effects; there is no surrogate, and moves about the mode are accepted."""
    monkeypatch.setattr(transitions, "MANY", 10)
    rng, program, data = np.random.default_rng(1), tmp_path / "factors.stan", tmp_path / "data.json"
    n = 600
    g = rng.integers(0, 3, n)
    factor = np.array([0, 0.5, -0.5])[g] + rng.standard_normal(n)
    y = 2 + np.outer(factor, [1, 0.8, 1.2, 0.9]) + 0.6 * rng.standard_normal((n, 4))
    program.write_text(FACTORS)
    data.write_text(json.dumps({"N": n, "G": 3, "g": (g + 1).tolist(), "y": y.tolist()}))
    command = ["sample", str(program), str(data), "--seed", "1", "--quiet", "--output", str(tmp_path / "draws.nc")]
    run([*command, "--iter-warmup", "100", "--iter-sampling", "100", "--fallback", "nuts"])
    shown = capsys.readouterr().err
    assert "Warning: the chains will hardly move." not in shown
    assert "Using NUTS" not in shown
    facts = inference_data.attrs(stansub.read_draws(tmp_path / "draws.nc"))
    assert "among 15 parameters: an observation has more than 12" in facts["choices"]["surrogate transitions"]
