// An autoregression of order K.
data {
  int<lower=1> K;
  int<lower=K + 1> T;
  array[T] real y;
}
parameters {
  real alpha;
  vector[K] beta;
  real<lower=0> sigma;
}
model {
  alpha ~ normal(0, 2);
  beta ~ normal(0, 1);
  sigma ~ exponential(1);
  for (t in (K + 1):T) {
    real mu = alpha;
    for (k in 1:K) {
      mu += beta[k] * y[t - k];
    }
    y[t] ~ normal(mu, sigma);
  }
}
