data {
  int<lower=0> N;
  int<lower=1> K;
  int<lower=1> J;
  array[N] int<lower=0, upper=1> y;
  matrix[N, K] x;
  array[N] int<lower=1, upper=J> group;
}
parameters {
  real alpha;
  vector[K] beta;
  real<lower=0> tau;
  vector[J] z;
}
transformed parameters {
  vector[J] effect = tau * z;
}
model {
  alpha ~ normal(0, 2.5);
  beta ~ normal(0, 2.5);
  tau ~ normal(0, 1);
  z ~ std_normal();
  y ~ bernoulli_logit(alpha + x * beta + effect[group]);
}
