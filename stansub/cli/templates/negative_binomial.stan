data {
  int<lower=0> N;
  int<lower=1> K;
  array[N] int<lower=0> y;
  matrix[N, K] x;
}
parameters {
  real alpha;
  vector[K] beta;
  real<lower=0> phi;
}
model {
  alpha ~ normal(0, 2.5);
  beta ~ normal(0, 2.5);
  phi ~ gamma(2, 0.5);
  y ~ neg_binomial_2_log_glm(x, alpha, beta, phi);
}
