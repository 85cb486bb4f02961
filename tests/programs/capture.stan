// Units with ragged records behind them: reduce_sum runs over the numbers of the units.
functions {
  real histories_lpmf(array[] int unit, int start, int end, array[] int first, array[] int length, array[] int seen,
                      vector covariate, real a, real b) {
    real total = 0;
    for (u in unit) {
      total += bernoulli_logit_lpmf(segment(seen, first[u], length[u]) | a + b * covariate[u]);
    }
    return total;
  }
}
data {
  int<lower=1> U;
  int<lower=1> R;
  array[U] int<lower=1, upper=U> unit;
  array[U] int<lower=1, upper=R> first;
  array[U] int<lower=1> length;
  array[R] int<lower=0, upper=1> seen;
  vector[U] covariate;
}
parameters {
  real a;
  real b;
}
model {
  int grainsize = max({1, U %/% 10});
  a ~ normal(0, 1.5);
  b ~ normal(0, 1.5);
  target += reduce_sum(histories_lupmf, unit, grainsize, first, length, seen, covariate, a, b);
}
