// Measurements in houses of counties, county effects standardised.
data {
  int<lower=1> N;
  int<lower=1> J;
  array[N] int<lower=1, upper=J> county;
  vector[N] floor_level;
  vector[N] log_radon;
}
parameters {
  vector[J] z;
  vector[2] mu;
  real<lower=0> tau;
  real<lower=0> sigma;
}
transformed parameters {
  vector[J] alpha = mu[1] + tau * z;
  vector[N] fitted;
  for (n in 1:N) {
    fitted[n] = alpha[county[n]] + mu[2] * floor_level[n];
  }
}
model {
  mu ~ normal(0, 5);
  tau ~ normal(0, 1);
  sigma ~ normal(0, 2);
  z ~ std_normal();
  log_radon ~ normal(fitted, sigma);
}
