// An ARCH(1) model: the variance follows from the last observation.
data {
  int<lower=2> T;
  array[T] real y;
}
parameters {
  real mu;
  real<lower=0> alpha0;
  real<lower=0, upper=1> alpha1;
}
model {
  mu ~ normal(0, 2);
  alpha0 ~ exponential(1);
  for (t in 2:T) {
    y[t] ~ normal(mu, sqrt(alpha0 + alpha1 * square(y[t - 1] - mu)));
  }
}
