// Not a sum over observations given shared parameters: each observation has a parameter of its own.
data {
  int<lower=0> N;
  array[N] int<lower=0> y;
}
parameters {
  real mu;
  real<lower=0> tau;
  vector[N] z;
}
model {
  mu ~ normal(0, 2);
  tau ~ exponential(1);
  z ~ std_normal();
  y ~ poisson_log(mu + tau * z);
}
