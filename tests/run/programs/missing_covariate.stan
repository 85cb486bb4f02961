// A covariate with missing values, as brms writes it: an outcome with a size of its own.
data {
  int<lower=1> N;
  vector[N] y;
  int<lower=1> N_x;
  vector[N_x] x;
  vector[N_x] w;
  int<lower=0> n_missing;
  array[n_missing] int<lower=1> missing;
}
parameters {
  real alpha;
  real beta;
  real<lower=0> sigma;
  real alpha_x;
  real beta_x;
  real<lower=0> sigma_x;
  vector[n_missing] x_missing;
}
model {
  {
    vector[N_x] known = x;
    vector[N] mu = rep_vector(alpha, N);
    known[missing] = x_missing;
    for (n in 1:N) {
      mu[n] += beta * known[n];
    }
    y ~ normal(mu, sigma);
    known ~ normal(alpha_x + beta_x * w, sigma_x);
  }
  alpha ~ normal(0, 2);
  beta ~ normal(0, 2);
  sigma ~ exponential(1);
  alpha_x ~ normal(0, 2);
  beta_x ~ normal(0, 2);
  sigma_x ~ exponential(1);
}
