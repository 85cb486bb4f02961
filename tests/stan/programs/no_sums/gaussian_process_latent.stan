// A Gaussian process behind counts, its covariance in a function.
functions {
  vector gp(array[] real x, real a, real r, vector z) {
    int n = size(x);
    matrix[n, n] K = add_diag(gp_exp_quad_cov(x, a, r), 1e-9);
    return cholesky_decompose(K) * z;
  }
}
data {
  int<lower=1> N;
  array[N] real x;
  array[N] int y;
}
parameters {
  real<lower=0> rho;
  real<lower=0> alpha;
  vector[N] eta;
}
transformed parameters {
  vector[N] f = gp(x, alpha, rho, eta);
}
model {
  eta ~ std_normal();
  y ~ poisson_log(f);
}

