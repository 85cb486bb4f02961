// A quadratic trend on a standardised predictor.
data {
  int<lower=1> N;
  vector[N] x;
  vector[N] y;
}
transformed data {
  vector[N] x_std = (x - mean(x)) / sd(x);
  vector[N] y_std = (y - mean(y)) / sd(y);
  vector[N] x_std2 = square(x_std);
}
parameters {
  real alpha;
  vector[2] beta;
  real<lower=0> sigma;
}
model {
  alpha ~ normal(0, 1);
  beta ~ normal(0, 1);
  sigma ~ exponential(1);
  y_std ~ normal(alpha + beta[1] * x_std + beta[2] * x_std2, sigma);
}
generated quantities {
  real slope = beta[1] * sd(y) / sd(x);
}
