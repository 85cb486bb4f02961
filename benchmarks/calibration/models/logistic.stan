// Logistic regression.
data {
  int<lower=0> N;
  int<lower=1> K;
  matrix[N, K] x;
  array[N] int<lower=0, upper=1> y;
}
parameters {
  real alpha;
  vector[K] beta;
}
model {
  alpha ~ normal(0, 1);
  beta ~ normal(0, 0.7);
  y ~ bernoulli_logit_glm(x, alpha, beta);
}
