// Counts with a normal effect of each.
data {
  int<lower=1> N;
  vector[N] x;
  array[N] int<lower=0> y;
}
parameters {
  real alpha;
  real beta;
  real<lower=0> sigma;
  vector[N] z;
}
model {
  alpha ~ normal(0, 3);
  beta ~ normal(0, 2);
  sigma ~ exponential(1);
  z ~ std_normal();
  y ~ poisson_log(alpha + beta * x + sigma * z);
}
