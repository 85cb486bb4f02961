"""Effects with an unknown scale are found from the text, whatever form a program has."""

from pathlib import Path

import pytest

from stansub.stan.analysis import Analysis
from stansub.stan.data import data as data_module
from stansub.stan.effects import effects, n_parameters, selected
from stansub.stan.source import read
from stansub.stan.syntax import Program, parse

REACH = Path(__file__).parents[2] / "benchmarks" / "reach" / "programs"
MISSING = "vector[N] z = y;"
HEAD = """data {
  int N; int J; int K; array[N] int g; array[J] int miss; matrix[J, J] miss_x; matrix[N, K] x; vector[N] y;
}"""
LIKELIHOOD = "y ~ normal(alpha + x * beta + u[g], sigma);"
PRIORS = "alpha ~ normal(0, 1); beta ~ normal(0, 1); sigma ~ exponential(1);"
SCALARS = "real alpha; vector[K] beta; real<lower=0> sigma; real<lower=0> tau;"


def program(tmp_path: Path, parameters: str, model: str, transformed: str = "") -> Program:
    file = tmp_path / "program.stan"
    transformed = f"transformed parameters {{ {transformed} }}" if transformed else ""
    file.write_text(f"{HEAD} parameters {{ {SCALARS} {parameters} }} {transformed} model {{ {PRIORS} {model} }}")
    return read(file).program


@pytest.mark.parametrize(
    ("parameters", "transformed", "model", "found"),
    [
        ("vector[J] u;", "", "u ~ normal(0, 1);", ()),
        ("vector[J] u;", "", "u ~ normal(0, tau);", ("u",)),
        ("vector[J] u;", "", "target += normal_lpdf(u | 0, tau);", ("u",)),
        ("vector[J] z;", "vector[J] u = tau * z;", "z ~ std_normal();", ("z",)),
        ("vector<multiplier=tau>[J] u;", "", "u ~ std_normal();", ("u",)),
        ("vector[J] u;", "real s = tau^2;", "for (j in 1 : J) u[j] ~ normal(0, s);", ("u",)),
        ("vector[J] u; array[J] ordered[K] c;", "", "for (j in 1 : J) c[j] ~ normal(alpha, tau);", ("c",)),
        ("vector[J] u; ordered[K] c;", "", "c ~ normal(alpha, tau);", ()),
        ("vector[J] z;", "vector[J] u = exp(tau) + z;", "z ~ std_normal();", ()),
        ("vector[J] u;", "", "u ~ normal(0, 1); tau ~ normal(alpha, 1);", ()),
        ("vector<lower=0>[J] u;", "", "u ~ gamma(1 / tau, 1 / tau);", ("u",)),
        ("vector<lower=0>[J] u;", "", "u ~ gamma(2, 2);", ()),
        ("vector[J] u; vector<lower=0>[J] s;", "", "u ~ normal(0, s); s ~ cauchy(0, tau);", ("u",)),
        ("vector[J] u; vector[J] mu;", "", "u ~ normal(mu, tau);", ("u",)),
        ("vector[J] u; vector[J] mu;", "", "target += normal_lpdf(u | mu, tau);", ("u",)),
        ("vector[J] u; vector[J] mu;", "", "u ~ normal(mu * tau, 1);", ("u", "mu")),
    ],
    ids=[
        "fixed",
        "centred",
        "target",
        "times",
        "multiplier",
        "loop",
        "cutpoints",
        "shared_cutpoints",
        "added",
        "scalars",
        "frailties",
        "fixed_frailties",
        "scales",
        "locations",
        "locations_in_target",
        "scaled_locations",
    ],
)
def test_of_a_regression(parameters: str, transformed: str, model: str, found: tuple[str, ...], tmp_path: Path) -> None:
    assert effects(program(tmp_path, parameters, f"{model} {LIKELIHOOD}", transformed), "N") == found


@pytest.mark.parametrize(
    ("parameters", "transformed", "model", "found"),
    [
        ("vector[J] u;", "", LIKELIHOOD, ("u",)),
        ("vector[J] z;", "vector[J] u = 2 * z;", LIKELIHOOD, ("z",)),
        ("vector<lower=0>[J] u;", "", LIKELIHOOD, ("u",)),
        ("matrix[J, 2] u;", "", "for (n in 1:N) y[n] ~ normal(u[g[n], 1] * x[n, 1] + u[g[n], 2], 1);", ("u",)),
        ("vector[J] u;", "vector[N] eta = x * beta + u[g];", "y ~ normal(eta, 1);", ("u",)),
        ("vector[J] u;", "", "for (j in 1:J) u[j] ~ normal(0, 1); y ~ normal(x * beta, 1);", ()),
        ("vector[J] u;", "", f"{MISSING} z[miss] = u; z ~ normal(x * beta, 1);", ("u",)),
        ("vector[J] u;", "", f"{MISSING} for (j in 1:J) z[miss[j]] = u[j]; z ~ normal(x * beta, 1);", ("u",)),
        ("vector[J] u;", "", f"{MISSING} z[miss] = miss_x * u; z ~ normal(x * beta, 1);", ()),
        ("vector[N] u;", "", "for (n in 1:N) y[n] ~ normal(u[1] + x[n] * beta, 1);", ()),
    ],
    ids=[
        *(
            "vector",
            "computed",
            "bounded",
            "matrix",
            "predictor",
            "prior",
            "missing",
            "each_missing",
            "product_at_places",
            "place",
        ),
    ],
)
def test_elements_that_data_select(
    parameters: str, transformed: str, model: str, found: tuple[str, ...], tmp_path: Path
) -> None:
    assert selected(program(tmp_path, parameters, model, transformed), "N") == found


def test_outcomes_of_each_size_are_the_likelihood() -> None:
    """Events and censored rows of a survival model read the same coefficients."""
    code = """data { int N; int M; int J; vector[N] t; vector[M] c; matrix[N, 2] x; matrix[M, 2] w; array[M] int g; }
      parameters { vector[2] b; vector[J] u; real<lower=0> shape; }
      model { t ~ weibull(shape, exp(x * b)); target += weibull_lccdf(c | shape, exp(w * b + u[g])); }"""
    analysis = Analysis.of(parse(code))
    assert (analysis.hints().effects, analysis.hints("M").effects) == ((), ())
    assert analysis.hints().selected == ("u",)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("brms_gaussian", ()),
        ("brms_distributional", ()),
        ("brms_groups", ("z_1", "z_2")),
        ("brms_correlated_groups", ("z_1",)),
        ("brms_spline_s", ("zs_1_1",)),
        ("radon_centred", ("alpha",)),
        ("ar1", ()),
    ],
)
def test_of_programs_as_people_have_them(name: str, found: tuple[str, ...]) -> None:
    analysis = read(REACH / f"{name}.stan").analysis
    assert analysis.hints().effects == found


def test_parameters_are_counted_before_anything_is_compiled() -> None:
    analysis: Analysis = read(REACH / "brms_correlated_groups.stan").analysis
    sizes = {"N_1": 11, "M_1": 2, "Kc": 3}
    values = {one.name: sizes.get(one.name, 1) for one in analysis.program.data.declarations if one.base == "int"}
    data = data_module.Data(values, analysis.program.data.declarations, "")
    # b, Intercept, sd_1, z_1, L_1 and, in a linear regression, sigma.
    declared = {one.name: one for one in analysis.program.parameters.declarations}
    expected = 3 + 1 + 2 + 22 + 4 + ("sigma" in declared)
    assert n_parameters(analysis.program, data) == expected
