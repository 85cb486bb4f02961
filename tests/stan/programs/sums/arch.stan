// The variance depends on the observation before: lagged data.
data {
  int<lower=0> T;
  array[T] real y;
}
parameters {
  real mu;
  real<lower=0> a0;
  real<lower=0, upper=1> a1;
}
model {
  for (t in 2 : T) {
    y[t] ~ normal(mu, sqrt(a0 + a1 * pow(y[t - 1] - mu, 2)));
  }
}

