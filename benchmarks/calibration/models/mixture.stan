// Mixture of two normal distributions whose means are ordered.
data {
  int<lower=0> N;
  vector[N] y;
}
parameters {
  real<lower=0, upper=1> weight;
  ordered[2] mu;
  vector<lower=0>[2] sigma;
}
model {
  weight ~ beta(5, 5);
  mu ~ normal([-1.5, 1.5]', 0.4);
  sigma ~ lognormal(-0.4, 0.2);
  for (n in 1:N) {
    target += log_mix(weight, normal_lpdf(y[n] | mu[1], sigma[1]), normal_lpdf(y[n] | mu[2], sigma[2]));
  }
}
