// A first-order autoregression, by slices.
data {
  int<lower=2> N;
  vector[N] y;
}
parameters {
  real alpha;
  real<lower=-1, upper=1> beta;
  real<lower=0> sigma;
}
model {
  sigma ~ exponential(1);
  y[2:N] ~ normal(alpha + beta * y[1:(N - 1)], sigma);
}
