// A sigmoidal dose-response (Emax with Hill's exponent); doses far below ED50 leave a ridge along ED50 and Emax.
data {
  int<lower=0> N;
  vector<lower=0>[N] dose;
  vector[N] y;
}
parameters {
  real baseline;
  real effect;
  real log_ed50;
  real log_hill;
  real<lower=0> sigma;
}
model {
  baseline ~ normal(0, 2);
  effect ~ normal(0, 5);
  log_ed50 ~ normal(0, 2);
  log_hill ~ normal(0, 0.5);
  sigma ~ normal(0, 2);
  y ~ normal(baseline + effect * inv_logit(exp(log_hill) * (log(dose) - log_ed50)), sigma);
}
