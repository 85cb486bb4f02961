// Rare outcomes in groups, whose scale may be near 0.
data {
  int<lower=0> N;
  int<lower=1> J;
  array[N] int<lower=1, upper=J> g;
  array[N] int<lower=0, upper=1> y;
}
parameters {
  real a;
  real<lower=0> tau;
  vector[J] z;
}
model {
  a ~ normal(0, 5);
  tau ~ normal(0, 1);
  z ~ std_normal();
  y ~ bernoulli_logit(a + tau * z[g]);
}
