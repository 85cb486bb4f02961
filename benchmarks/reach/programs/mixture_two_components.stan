// A mixture of two normal distributions.
data {
  int<lower=1> N;
  vector[N] y;
}
parameters {
  real<lower=0, upper=1> p;
  ordered[2] mu;
  vector<lower=0>[2] sigma;
}
model {
  p ~ beta(2, 2);
  mu ~ normal(0, 5);
  sigma ~ lognormal(0, 0.5);
  for (n in 1:N) {
    target += log_mix(p, normal_lpdf(y[n] | mu[1], sigma[1]), normal_lpdf(y[n] | mu[2], sigma[2]));
  }
}
