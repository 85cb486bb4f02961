// Vectors as observations, a design matrix for each, a covariance matrix and a Cholesky factor as parameters.
data {
  int<lower=1> D;
  int<lower=1> K;
  int N;
  array[N] vector[D] y;
  array[N] row_vector[D] z;
  array[N] matrix[D, K] x;
}
parameters {
  vector[K] beta;
  cov_matrix[D] Sigma;
  cholesky_factor_corr[D] L;
}
model {
  beta ~ normal(0, 2);
  Sigma ~ inv_wishart(D + 2.0, identity_matrix(D));
  L ~ lkj_corr_cholesky(2);
  {
    array[N] vector[D] mu;
    for (n in 1 : N) {
      mu[n] = x[n] * beta;
    }
    y ~ multi_normal(mu, Sigma);
    z ~ multi_normal_cholesky(mu, L);
  }
}
