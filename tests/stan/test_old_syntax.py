"""Programs with arrays, comments and assignments in old syntax are offered in today's."""

from __future__ import annotations

from pathlib import Path

import pytest

from stansub import cli
from stansub.errors import InputError
from stansub.stan import source
from stansub.stan.reading.old_syntax import converted

OLD = """functions {
  real[] twice(real[] x, int[,] k, vector[] v, real s) {
    real r[size(x)];
    for (i in 1:size(x)) r[i] = 2 * x[i];
    return r;
  }
}
data {
  int<lower=0> N; // a count[N]
  int<lower=1> K; # with "quotes[2]", // and /* marks
  int<lower=0, upper=1> y[N];
  vector<lower=-1>[K] x[N];
  real<lower=fmin(0, N)> z[N, 2];
  matrix[N, K] w;
  int<lower=1> at[1];
}
parameters {
  real alpha;
  vector[K] beta[2];
}
model {
  real mu[N];
  real m;
  m <- alpha;
  for (n in 1:N) {
    real q[2] = {1.0, 2.0};
    mu[n]<-m + q[1] * (x[n]' * beta[1]);
    if (mu[n]<-m) mu[n] <- mu[n<-1 ? 2 : 1];
  }
  y ~ bernoulli_logit(mu);
}
"""
NEW = """functions {
  array[] real twice(array[] real x, array[,] int k, array[] vector v, real s) {
    array[size(x)] real r;
    for (i in 1:size(x)) r[i] = 2 * x[i];
    return r;
  }
}
data {
  int<lower=0> N; // a count[N]
  int<lower=1> K; // with "quotes[2]", // and /* marks
  array[N] int<lower=0, upper=1> y;
  array[N] vector<lower=-1>[K] x;
  array[N, 2] real<lower=fmin(0, N)> z;
  matrix[N, K] w;
  array[1] int<lower=1> at;
}
parameters {
  real alpha;
  array[2] vector[K] beta;
}
model {
  array[N] real mu;
  real m;
  m = alpha;
  for (n in 1:N) {
    array[2] real q = {1.0, 2.0};
    mu[n]=m + q[1] * (x[n]' * beta[1]);
    if (mu[n]<-m) mu[n] = mu[n<-1 ? 2 : 1];
  }
  y ~ bernoulli_logit(mu);
}
"""


def test_old_syntax_changes_and_nothing_else() -> None:
    assert converted(OLD) == NEW
    assert converted(NEW) == NEW


def test_marks_of_comments_elsewhere_stay() -> None:
    code = '#include "real x[2].stan"\nmodel { print("# real x[2]"); /* # */ } // # real x[2]\n'
    assert converted(code) == code


def test_check_offers_and_writes_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old.stan", tmp_path / "new.stan"
    old.write_text(OLD)
    with pytest.raises(
        source.OldSyntaxError, match=r"old.stan, line 2: .* run stansub check --write NEW.stan \S*old.stan$"
    ):
        source.read(old)
    for more, code in (([], 2), (["--write", str(new)], 0), (["--write", str(new)], 2)):
        with pytest.raises(SystemExit) as exit_:
            cli.main(["check", str(old), *more])
        assert exit_.value.code == code
    assert f"to convert the program, run stansub check --write NEW.stan {old}\n" in capsys.readouterr().err
    assert new.read_text() == NEW
    assert source.read(new).program.data.declarations[2].sizes == ("N",)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "parameters { real a[2]; } model { b ~ normal(0, 1); }",
            r"\Wb\W.* \(correct this first; .* then convert arrays",
        ),
        ("parameters { real a[2; }", "syntax error"),
    ],
)
def test_other_errors_come_first(code: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.stan"
    path.write_text(code)
    with pytest.raises(InputError, match=message) as error:
        source.read(path)
    assert not isinstance(error.value, source.OldSyntaxError)
    assert "\n" not in str(error.value)
