// L1-regularised linear regression through 0 with one coefficient (Korattikara et al. 2014, section 5.4).
data {
  int<lower=0> N;
  vector[N] x;
  vector[N] y;
  real<lower=0> precision;
  real<lower=0> rate;
}
parameters {
  real theta;
}
model {
  target += -rate * abs(theta);
  y ~ normal(x * theta, inv_sqrt(precision));
}
