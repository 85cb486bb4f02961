// Counts at sites and days: a mixed Poisson regression with many effects.
data {
  int<lower=1> N;
  int<lower=1> S;
  int<lower=1> D;
  array[N] int<lower=1, upper=S> site;
  array[N] int<lower=1, upper=D> day;
  vector[N] x;
  array[N] int<lower=0> y;
}
parameters {
  real alpha;
  real beta;
  vector[S] u;
  vector[D] v;
  real<lower=0> sd_u;
  real<lower=0> sd_v;
}
model {
  alpha ~ normal(0, 3);
  beta ~ normal(0, 1);
  sd_u ~ normal(0, 1);
  sd_v ~ normal(0, 1);
  u ~ normal(0, sd_u);
  v ~ normal(0, sd_v);
  y ~ poisson_log(alpha + beta * x + u[site] + v[day]);
}
