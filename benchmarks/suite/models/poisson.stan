// Poisson regression with log link and log exposure, as a GLM function.
data {
  int<lower=0> N;
  int<lower=1> K;
  array[N] int<lower=0> y;
  matrix[N, K] x;
  vector[N] log_exposure;
}
parameters {
  real alpha;
  vector[K] beta;
}
model {
  alpha ~ normal(0, 2.5);
  beta ~ normal(0, 2.5);
  y ~ poisson_log_glm(x, log_exposure + alpha, beta);
}
