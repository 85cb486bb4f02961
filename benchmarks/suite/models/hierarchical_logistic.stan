// Logistic regression with intercepts by group, centred: with thousands of observations a group this form mixes best.
data {
  int<lower=0> N;
  int<lower=1> K;
  int<lower=1> J;
  array[N] int<lower=0, upper=1> y;
  matrix[N, K] x;
  array[N] int<lower=1, upper=J> group;
}
parameters {
  real mu;
  vector[K] beta;
  real<lower=0> tau;
  vector[J] intercept;
}
model {
  mu ~ normal(0, 2.5);
  beta ~ normal(0, 2.5);
  tau ~ normal(0, 1);
  intercept ~ normal(mu, tau);
  y ~ bernoulli_logit_glm(x, intercept[group], beta);
}
