// A regression whose slope enters squared: two modes, one of each sign, whose weights the prior sets.
data {
  int<lower=0> N;
  vector[N] x;
  vector[N] y;
}
parameters {
  real alpha;
  real beta;
  real<lower=0> sigma;
}
model {
  alpha ~ normal(0, 2);
  beta ~ normal(0.5, 1);
  sigma ~ normal(0, 2);
  y ~ normal(alpha + square(beta) * x, sigma);
}
