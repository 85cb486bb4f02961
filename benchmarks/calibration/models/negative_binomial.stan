// Negative binomial regression with a logarithmic link.
data {
  int<lower=0> N;
  int<lower=1> K;
  matrix[N, K] x;
  array[N] int<lower=0> y;
}
parameters {
  real alpha;
  vector[K] beta;
  real<lower=0> phi;
}
model {
  alpha ~ normal(1, 0.5);
  beta ~ normal(0, 0.3);
  phi ~ lognormal(0.7, 0.4);
  y ~ neg_binomial_2_log_glm(x, alpha, beta, phi);
}
