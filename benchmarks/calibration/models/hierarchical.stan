// Normal observations in groups whose means have a normal distribution, centred.
data {
  int<lower=0> N;
  int<lower=1> J;
  array[N] int<lower=1, upper=J> group;
  vector[N] y;
}
parameters {
  real mu;
  real<lower=0> tau;
  vector[J] effect;
}
model {
  mu ~ normal(0, 1);
  tau ~ lognormal(0, 0.4);
  effect ~ normal(mu, tau);
  y ~ normal(effect[group], 1);
}
