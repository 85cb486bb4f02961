// Logistic regression written for within-chain threading.
functions {
  real partial_sum_lpmf(array[] int slice, int start, int end, matrix x, real alpha, vector beta) {
    return bernoulli_logit_glm_lupmf(slice | x[start : end], alpha, beta);
  }
}
data {
  int<lower=0> N;
  int<lower=1> K;
  array[N] int<lower=0, upper=1> y;
  matrix[N, K] x;
}
parameters {
  real alpha;
  vector[K] beta;
}
model {
  alpha ~ normal(0, 2.5);
  beta ~ normal(0, 2.5);
  target += reduce_sum(partial_sum_lupmf, y, 1, x, alpha, beta);
}
