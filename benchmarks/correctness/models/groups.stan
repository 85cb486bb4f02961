// Means of groups, centred; scales near 0 make a funnel.
data {
  int<lower=0> N;
  int<lower=1> J;
  array[N] int<lower=1, upper=J> group;
  vector[N] y;
}
parameters {
  real mu;
  real<lower=0> tau;
  vector[J] theta;
  real<lower=0> sigma;
}
model {
  mu ~ normal(0, 2);
  tau ~ normal(0, 0.5);
  theta ~ normal(mu, tau);
  sigma ~ normal(0, 2);
  y ~ normal(theta[group], sigma);
}
