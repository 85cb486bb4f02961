// Repeated measurements of persons: a level of each, and a trend.
data {
  int<lower=0> N;
  int<lower=1> n_ids;
  vector[N] value;
  vector[N] decade;
  array[N] int<lower=1, upper=n_ids> id;
}
parameters {
  real alpha;
  real beta;
  vector[n_ids] u;
  real<lower=0> sd_id;
  real<lower=0> sigma;
}
model {
  alpha ~ normal(4, 2);
  beta ~ normal(0, 1);
  u ~ normal(0, sd_id);
  sd_id ~ normal(0, 1);
  sigma ~ normal(0, 1);
  value ~ normal(alpha + beta * decade + u[id], sigma);
}
