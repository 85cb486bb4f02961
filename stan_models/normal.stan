// Mean and standard deviation of a normal sample.
data {
  int<lower=0> N;
  vector[N] y;
}
parameters {
  real mu;
  real<lower=0> sigma;
}
model {
  mu ~ normal(0, 10);
  sigma ~ normal(0, 10);
  y ~ normal(mu, sigma);
}
