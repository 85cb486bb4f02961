// Times to an event in one array, censored ones in another, and a third that is too short to be drawn from.
data {
  int<lower=0> N_obs;
  int<lower=0> N_cen;
  int<lower=0> N_left;
  int<lower=1> K;
  vector<lower=0>[N_obs] t_obs;
  vector<lower=0>[N_cen] t_cen;
  vector<lower=0>[N_left] t_left;
  matrix[N_obs, K] x_obs;
  matrix[N_cen, K] x_cen;
  matrix[N_left, K] x_left;
}
parameters {
  real alpha;
  vector[K] beta;
  real<lower=0> shape;
}
transformed parameters {
  vector<lower=0>[N_obs] scale_obs = exp(alpha + x_obs * beta);
}
model {
  alpha ~ normal(0, 2);
  beta ~ normal(0, 1);
  shape ~ gamma(2, 1);
  t_obs ~ weibull(shape, scale_obs);
  {
    vector[N_cen] scale = exp(alpha + x_cen * beta);
    target += weibull_lccdf(t_cen | shape, scale);
  }
  {
    vector[N_left] scale = exp(alpha + x_left * beta);
    for (n in 1 : N_left) {
      target += weibull_lcdf(t_left[n] | shape, scale[n]);
    }
  }
}
