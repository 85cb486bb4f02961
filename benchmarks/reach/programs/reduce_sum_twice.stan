// Events and censored times, each within a reduce_sum.
functions {
  real observed(array[] real slice, int start, int end, vector x, real alpha, real beta, real shape) {
    return weibull_lpdf(slice | shape, exp(alpha + beta * x[start:end]));
  }
  real censored(array[] real slice, int start, int end, vector x, real alpha, real beta, real shape) {
    return weibull_lccdf(slice | shape, exp(alpha + beta * x[start:end]));
  }
}
data {
  int<lower=1> N_obs;
  int<lower=1> N_cen;
  array[N_obs] real<lower=0> t_obs;
  array[N_cen] real<lower=0> t_cen;
  vector[N_obs] x_obs;
  vector[N_cen] x_cen;
}
parameters {
  real alpha;
  real beta;
  real<lower=0> shape;
}
model {
  alpha ~ normal(0, 5);
  beta ~ normal(0, 2);
  shape ~ lognormal(0, 1);
  target += reduce_sum(observed, t_obs, 1, x_obs, alpha, beta, shape);
  target += reduce_sum(censored, t_cen, 1, x_cen, alpha, beta, shape);
}
