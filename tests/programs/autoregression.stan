// Each term looks at the observation before it: a sum whose parts may be drawn, but data that must keep their order.
functions {
  real log_lik_i(int i, vector y, real rho, real sigma) {
    return normal_lpdf(y[i] | rho * y[i - 1], sigma);
  }
}
data {
  int<lower=2> N;
  vector[N] y;
}
parameters {
  real<lower=-1, upper=1> rho;
  real<lower=0> sigma;
}
model {
  sigma ~ exponential(1);
  y[1] ~ normal(0, sigma / sqrt(1 - square(rho)));
  for (t in 2 : N) {
    target += log_lik_i(t, y, rho, sigma);
  }
}
