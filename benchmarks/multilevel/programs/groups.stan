// Logistic regression with thousands of small groups, centred.
data {
  int<lower=1> N; int<lower=1> K; int<lower=1> J;
  array[N] int<lower=0, upper=1> y;
  matrix[N, K] x;
  array[N] int<lower=1, upper=J> g;
}
parameters { real alpha; vector[K] beta; real<lower=0> tau; vector[J] u; }
model {
  alpha ~ normal(0, 2); beta ~ normal(0, 1); tau ~ normal(0, 1);
  u ~ normal(0, tau);
  y ~ bernoulli_logit(alpha + x * beta + u[g]);
}
