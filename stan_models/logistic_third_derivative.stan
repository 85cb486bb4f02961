// Logistic regression with a bound on third derivatives: concentration bounds on remainders keep their guarantee.
functions {
  real partial_sum_lpmf(array[] int slice, int start, int end, matrix x, real alpha, vector beta) {
    return bernoulli_logit_glm_lupmf(slice | x[start : end], alpha, beta);
  }
  // Bound on the operator norm of the third derivative of observation i's log likelihood in (alpha, beta): that of
  // log(1 + exp(eta)) is at most 1 / (6 sqrt(3)), times the cubed norm of the covariates, intercept included.
  real log_lik_third_derivative_i(int i, matrix x) {
    return (1 + dot_self(x[i])) ^ 1.5 / (6 * sqrt(3));
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
