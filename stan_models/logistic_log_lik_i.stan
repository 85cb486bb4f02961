// Logistic regression; the log likelihood of observation i is a function of its own.
functions {
  real log_lik_i(int i, array[] int y, matrix x, real alpha, vector beta) {
    return bernoulli_logit_lpmf(y[i] | alpha + x[i] * beta);
  }
  // Lipschitz constant of observation i in (alpha, beta): the norm of its covariates, intercept included.
  real log_lik_lipschitz_i(int i, matrix x) {
    return sqrt(1 + dot_self(x[i]));
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
  for (i in 1 : N) {
    target += log_lik_i(i, y, x, alpha, beta);
  }
}
