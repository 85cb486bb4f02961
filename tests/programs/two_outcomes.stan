// Two outcomes of every unit, each with a size of its own, in literals of row vectors.
data {
  int<lower=1> N;
  int<lower=1> N_a;
  vector[N_a] a;
  int<lower=1> N_b;
  vector[N_b] b;
}
parameters {
  vector[2] mu;
  vector<lower=0>[2] sigma;
  cholesky_factor_corr[2] L;
}
model {
  array[N] vector[2] y;
  for (n in 1 : N) {
    y[n] = [a[n], b[n]]';
  }
  mu ~ normal(0, 1);
  sigma ~ exponential(1);
  L ~ lkj_corr_cholesky(2);
  y ~ multi_normal_cholesky(mu, diag_pre_multiply(sigma, L));
}
