// Not a sum over observations: a moving average, whose residuals depend on all observations before.
data {
  int<lower=1> N;
  vector[N] y;
}
parameters {
  real mu;
  real<lower=-1, upper=1> theta;
  real<lower=0> sigma;
}
model {
  vector[N] residual;
  residual[1] = y[1] - mu;
  for (n in 2 : N) {
    residual[n] = y[n] - mu - theta * residual[n - 1];
  }
  sigma ~ exponential(1);
  residual ~ normal(0, sigma);
}
