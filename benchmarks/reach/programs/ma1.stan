// A first-order moving average.
data {
  int<lower=2> T;
  vector[T] y;
}
parameters {
  real mu;
  real<lower=-1, upper=1> theta;
  real<lower=0> sigma;
}
model {
  vector[T] err;
  mu ~ normal(0, 5);
  sigma ~ exponential(1);
  err[1] = y[1] - mu;
  for (t in 2:T) {
    err[t] = y[t] - mu - theta * err[t - 1];
  }
  err ~ normal(0, sigma);
}
