// Poisson regression with a logarithmic link.
data {
  int<lower=0> N;
  int<lower=1> K;
  matrix[N, K] x;
  array[N] int<lower=0> y;
}
parameters {
  real alpha;
  vector[K] beta;
}
model {
  alpha ~ normal(0.5, 0.5);
  beta ~ normal(0, 0.3);
  y ~ poisson_log_glm(x, alpha, beta);
}
