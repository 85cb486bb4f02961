// An autoregression: a sum over observations given the data, each with the one before it.
data {
  int<lower=2> N;
  vector[N] y;
}
parameters {
  real alpha;
  real rho;
  real<lower=0> sigma;
}
model {
  sigma ~ exponential(1);
  y[1] ~ normal(0, 2);
  for (t in 2:N)
    y[t] ~ normal(alpha + rho * y[t-1], sigma);
}
generated quantities {
  real mean_level = alpha / (1 - rho);
}
