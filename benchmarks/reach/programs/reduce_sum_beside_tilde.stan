// Two outcomes of the same units, one within reduce_sum.
functions {
  real part(array[] int slice, int start, int end, vector x, real alpha, real beta) {
    return bernoulli_logit_lpmf(slice | alpha + beta * x[start:end]);
  }
}
data {
  int<lower=0> N;
  vector[N] x;
  array[N] int<lower=0, upper=1> y;
  vector[N] z;
}
parameters {
  real alpha;
  real beta;
  real gamma;
  real<lower=0> sigma;
}
model {
  alpha ~ normal(0, 2);
  beta ~ normal(0, 2);
  gamma ~ normal(0, 2);
  sigma ~ exponential(1);
  z ~ normal(gamma + beta * x, sigma);
  target += reduce_sum(part, y, 1, x, alpha, beta);
}
