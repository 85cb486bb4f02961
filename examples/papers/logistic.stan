// Logistic regression with a Gaussian prior on its weights: y[i] ~ bernoulli_logit(x[i] * beta).
functions {
  real partial_sum_lpmf(array[] int slice, int start, int end, matrix x, vector beta) {
    return bernoulli_logit_glm_lupmf(slice | x[start : end], 0, beta);
  }
}
data {
  int<lower=0> N;
  int<lower=1> K;
  real<lower=0> prior_sd;
  array[N] int<lower=0, upper=1> y;
  matrix[N, K] x;
}
parameters {
  vector[K] beta;
}
model {
  beta ~ normal(0, prior_sd);
  target += reduce_sum(partial_sum_lupmf, y, 1, x, beta);
}
