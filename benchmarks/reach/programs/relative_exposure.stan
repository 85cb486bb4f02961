// Counts by an exposure that is scaled by its own mean, which depends on a parameter.
data {
  int<lower=1> N;
  vector[N] x;
  array[N] int<lower=0> y;
}
parameters {
  real alpha;
  real beta;
}
transformed parameters {
  vector[N] exposure = exp(beta * x);
  exposure = exposure / mean(exposure);
}
model {
  alpha ~ normal(0, 3);
  beta ~ normal(0, 1);
  y ~ poisson(exp(alpha) * exposure);
}
