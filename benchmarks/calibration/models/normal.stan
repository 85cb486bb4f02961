// Normal observations; mean and standard deviation.
data {
  int<lower=0> N;
  vector[N] y;
}
parameters {
  real mu;
  real<lower=0> sigma;
}
model {
  mu ~ normal(0, 1);
  sigma ~ lognormal(0, 0.4);
  y ~ normal(mu, sigma);
}
