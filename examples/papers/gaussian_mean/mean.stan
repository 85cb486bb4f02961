// Mean of a normal model with known sd, flat prior.
data {
  int<lower=0> N;
  vector[N] y;
}
parameters {
  real theta;
}
model {
  y ~ normal(theta, 1);
}
