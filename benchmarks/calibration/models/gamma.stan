// Gamma regression with a logarithmic link.
data {
  int<lower=0> N;
  vector[N] x;
  vector<lower=0>[N] y;
}
parameters {
  real alpha;
  real beta;
  real<lower=0> shape;
}
model {
  alpha ~ normal(0, 1);
  beta ~ normal(0, 0.5);
  shape ~ lognormal(0.7, 0.4);
  y ~ gamma(shape, shape * exp(-alpha - beta * x));
}
