// Not a sum over observations: each depends on the one before it.
data {
  int<lower=0> N;
  vector[N] y;
}
parameters {
  real<lower=-1, upper=1> rho;
  real<lower=0> sigma;
}
model {
  sigma ~ exponential(1);
  for (n in 2 : N) {
    y[n] ~ normal(rho * y[n - 1], sigma);
  }
}
