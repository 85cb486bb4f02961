// Survival with right censoring, events and censored times in arrays of their own.
data {
  int<lower=0> N_obs;
  int<lower=0> N_cen;
  int<lower=1> K;
  vector<lower=0>[N_obs] t_obs;
  vector<lower=0>[N_cen] t_cen;
  matrix[N_obs, K] x_obs;
  matrix[N_cen, K] x_cen;
}
parameters {
  real alpha;
  vector[K] beta;
  real<lower=0> shape;
}
model {
  alpha ~ normal(0, 5);
  beta ~ normal(0, 2);
  shape ~ lognormal(0, 1);
  t_obs ~ weibull(shape, exp(alpha + x_obs * beta));
  target += weibull_lccdf(t_cen | shape, exp(alpha + x_cen * beta));
}
