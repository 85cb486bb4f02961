// Each observation has another for a partner, by its place in the data.
data {
  int<lower=0> N;
  vector[N] y;
  array[N] int<lower=1, upper=N> partner;
}
parameters {
  real a;
  real<lower=-1, upper=1> b;
  real<lower=0> sigma;
}
transformed parameters {
  vector[N] mu = a + b * y[partner];
}
model {
  a ~ normal(mean(y), 1);
  sigma ~ exponential(1);
  y ~ normal(mu, sigma);
}
