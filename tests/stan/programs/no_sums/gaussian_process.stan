// A Gaussian process with its latent values integrated out.
data {
  int<lower=1> N;
  array[N] real x;
  vector[N] y;
}
transformed data {
  vector[N] mu = rep_vector(0, N);
}
parameters {
  real<lower=0> rho;
  real<lower=0> alpha;
  real<lower=0> sigma;
}
model {
  matrix[N, N] L_K;
  matrix[N, N] K = gp_exp_quad_cov(x, alpha, rho);
  for (n in 1 : N) {
    K[n, n] = K[n, n] + square(sigma);
  }
  L_K = cholesky_decompose(K);
  rho ~ inv_gamma(5, 5);
  y ~ multi_normal_cholesky(mu, L_K);
}

