// Stochastic volatility: a hidden log variance that wanders.
data {
  int<lower=1> T;
  vector[T] y;
}
parameters {
  real mu;
  real<lower=-1, upper=1> phi;
  real<lower=0> sigma;
  vector[T] h;
}
model {
  mu ~ normal(0, 3);
  sigma ~ exponential(1);
  h[1] ~ normal(mu, sigma / sqrt(1 - phi * phi));
  h[2:T] ~ normal(mu + phi * (h[1:(T - 1)] - mu), sigma);
  y ~ normal(0, exp(h / 2));
}
