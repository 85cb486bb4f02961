// A first-order autoregression, in a loop.
data {
  int<lower=2> T;
  vector[T] y;
}
parameters {
  real alpha;
  real beta;
  real<lower=0> sigma;
}
model {
  alpha ~ normal(0, 2);
  beta ~ normal(0, 1);
  sigma ~ exponential(1);
  for (t in 2:T) {
    y[t] ~ normal(alpha + beta * y[t - 1], sigma);
  }
}
