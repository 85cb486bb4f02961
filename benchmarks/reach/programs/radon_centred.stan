// Measurements in houses of counties, county effects as they are.
data {
  int<lower=1> N;
  int<lower=1> J;
  array[N] int<lower=1, upper=J> county;
  vector[N] floor_level;
  vector[J] uranium;
  vector[N] log_radon;
}
parameters {
  vector[J] alpha;
  real beta;
  real gamma0;
  real gamma1;
  real<lower=0> tau;
  real<lower=0> sigma;
}
model {
  gamma0 ~ normal(0, 5);
  gamma1 ~ normal(0, 5);
  beta ~ normal(0, 5);
  tau ~ normal(0, 1);
  sigma ~ normal(0, 2);
  alpha ~ normal(gamma0 + gamma1 * uranium, tau);
  log_radon ~ normal(alpha[county] + beta * floor_level, sigma);
}
