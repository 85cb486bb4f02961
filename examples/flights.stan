// Does a flight arrive more than 15 minutes late?
data {
  int<lower=0> N;
  int<lower=1> K;
  array[N] int<lower=0, upper=1> late;
  matrix[N, K] x;
}
parameters {
  real alpha;
  vector[K] beta;
}
model {
  alpha ~ normal(0, 2.5);
  beta ~ normal(0, 2.5);
  late ~ bernoulli_logit_glm(x, alpha, beta);
}
