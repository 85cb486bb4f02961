"""What the text shows of how arguments depend on the unconstrained parameters."""

import pytest

from stansub.stan import toolchain
from stansub.stan.arguments import argument_program, recognised
from stansub.stan.linearity import Shape, shape_at
from stansub.stan.recognise import recognise
from stansub.stan.syntax import Tilde, parse, parse_expression, walk
from stansub.target.remainders import NoPredictorsError

PROGRAM = """
data {{
  int N; int J; vector[N] y; vector[N] x; matrix[N, 2] X; array[N] int g;
}}
transformed data {{
  vector[N] centred = x - mean(x);
}}
parameters {{
  real a; real b; vector[2] beta; vector[J] u;
  real<lower=0> s; vector<lower=0>[J] t; real<lower=0, upper=1> p; real<lower=1> q; simplex[3] w;
  real<offset=2, multiplier=3> shifted; vector<offset=a, multiplier=s>[J] centred_u;
}}
transformed parameters {{
  vector[N] eta = a + x * b;
  real kept = a;
}}
model {{
  {lines}
  y ~ normal({argument}, 1);
}}
"""

SHAPES = {
    Shape.KNOWN: ("x", "2 * mean(x)", "X[ : , 1] / 3", "rep_vector(0, N)", "g[2] > 1 ? x : y"),
    Shape.AFFINE: (
        *("a", "eta", "X * beta", "a + x .* u[g] - 2", "-a", "x / 2 + b", "(a + b) * 3", "rep_vector(a, N)", "sum(u)"),
        *("log(s)", "2 * log(s) + a", "logit(p)", "shifted", "dot_product(X[1], beta)", "beta[1] + u[g]", "kept - a"),
        *("log(s ^ 2 / t[1])", "-log(sqrt(s))", "append_row(u, beta)", "to_vector(rep_row_vector(b, N))"),
    ),
    Shape.EXP: ("s", "exp(eta)", "1 / s", "s * t[1]", "sqrt(s) / t[g]", "s ^ 2", "2 * exp(a)", "inv_square(s)", "t[g]"),
    Shape.LOGIT: ("p", "inv_logit(a + x * b)", "rep_vector(p, N)"),
    Shape.NONLINEAR: (
        *("a * b", "s * u[g]", "a + s * u[g]", "Phi(eta)", "inv_cloglog(eta)", "exp(eta) / tgamma(1 + 1 / s)", "a / s"),
        *(
            "lgamma(q)",
            "centred_u",
            "a + a * b + s * u[g]",
            "diag_pre_multiply(u, X) * beta",
            "Phi_approx(a)",
            "sin(w)",
        ),
    ),
    # What a closer look would settle, and functions that undo each other.
    Shape.OPEN: (
        *("q", "w", "s + 1", "1 - p", "a ^ 2", "lgamma(a + 1) - lgamma(a)", "inv_Phi(Phi(a))", "Phi(inv_Phi(p))"),
        *("log1p(expm1(a))", "s * u / s", "-(-s)", "a > 0 ? a : b", "u[a > 0]", "sum(t)", "mine(a)", "p / (1 - p)"),
    ),
}


def shape(argument: str, lines: str = "") -> Shape:
    program = parse(PROGRAM.format(lines=lines, argument=argument))
    (statement,) = [one for one in walk(program.model.statements) if isinstance(one, Tilde)]
    return shape_at(program, statement.span, parse_expression(argument))


@pytest.mark.parametrize(("argument", "wanted"), [(text, one) for one, texts in SHAPES.items() for text in texts])
def test_expressions(argument: str, wanted: Shape) -> None:
    assert shape(argument) is wanted


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("vector[N] mu = rep_vector(0, N); mu += a + X * beta;", Shape.AFFINE),
        ("vector[N] mu; for (n in 1:N) { mu[n] = a + u[g[n]]; }", Shape.AFFINE),
        ("vector[N] mu = eta; for (n in 1:N) { mu[n] += s * u[g[n]]; }", Shape.NONLINEAR),
        ("vector[N] mu = eta; mu = exp(mu);", Shape.EXP),
        ("vector[N] mu = eta; mu = log(exp(mu));", Shape.AFFINE),
        ("vector[N] mu = Phi(eta); mu = eta;", Shape.AFFINE),
        ("vector[N] mu = eta; if (J > 1) { mu = exp(mu); }", Shape.OPEN),
        ("vector[N] mu = eta; if (a > 1) { mu += b; }", Shape.OPEN),
        ("vector[N] mu = eta; if (J > 1) { mu += b; } else { mu -= b; }", Shape.AFFINE),
        ("vector[N] mu = eta; while (J > 1) { mu *= s; }", Shape.OPEN),
        ('vector[N] mu = eta; profile("m") { mu *= s; }', Shape.NONLINEAR),
        ("vector[N] mu = eta; for (n in 1:N) { mu[n] = exp(mu[n]); }", Shape.OPEN),
        ("vector[N] mu = eta; for (one in u) { mu += one; }", Shape.AFFINE),
    ],
)
def test_statements_are_followed_in_their_order(lines: str, wanted: Shape) -> None:
    assert shape("mu", lines) is wanted


BRMS = """
data {{ int<lower=1> N; array[N] {kind} Y; matrix[N, 2] X; int prior_only; }}
parameters {{ vector[2] b; real Intercept; real<lower=0> shape; }}
model {{
  if (!prior_only) {{
    vector[N] mu = rep_vector(0.0, N);
    mu += Intercept + X * b;
    mu = {inverse}(mu);
    target += {density};
  }}
  b ~ normal(0, 1);
}}
"""


@pytest.mark.parametrize(
    ("kind", "inverse", "density", "reason"),
    [
        ("real", "exp", "weibull_lpdf(Y | shape, mu / tgamma(1 + 1 / shape))", "the log of argument 2 of weibull"),
        ("int", "Phi", "bernoulli_lpmf(Y | mu)", "the logit of argument 1 of bernoulli"),
        ("int", "inv_cloglog", "bernoulli_lpmf(Y | mu)", "the logit of argument 1 of bernoulli"),
        ("int", "exp", "bernoulli_lpmf(Y | mu)", "the logit of argument 1 of bernoulli"),
        ("int", "inv_logit", "bernoulli_lpmf(Y | mu)", None),
        ("int", "exp", "poisson_lpmf(Y | mu)", None),
        ("real", "exp", "weibull_lpdf(Y | shape, mu)", None),
    ],
)
def test_nothing_is_compiled_where_the_text_shows_that_it_would_be_for_nothing(
    kind: str, inverse: str, density: str, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "compile_library", lambda *_, **__: pytest.fail("it was compiled"))
    program = parse(BRMS.format(kind=kind, inverse=inverse, density=density))
    assert recognised(program)  # what is chosen by the family alone stays as it is
    if reason is None:
        assert "stansub_0" in argument_program(program, recognise(program), "N").code
    else:
        with pytest.raises(NoPredictorsError, match=f"{reason} is not affine in the unconstrained parameters"):
            argument_program(program, recognise(program), "N")
