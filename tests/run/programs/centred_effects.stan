// Means of three groups about a common one, centred: the scale tau touches no observation.
data {
  int<lower=1> J;
  int<lower=0> N;
  vector[N] y;
  array[N] int<lower=1, upper=J> group;
}
parameters {
  real mu;
  real<lower=0> tau;
  vector[J] effect;
}
model {
  mu ~ normal(0, 2);
  tau ~ normal(0, 1);
  effect ~ normal(mu, tau);
  y ~ normal(effect[group], 1);
}
