// Counts about a Gaussian process, which has a value at each.
data {
  int<lower=1> N;
  array[N] real x;
  array[N] int<lower=0> y;
}
parameters {
  real<lower=0> rho;
  real<lower=0> alpha;
  real a;
  vector[N] eta;
}
transformed parameters {
  vector[N] f = cholesky_decompose(add_diag(gp_exp_quad_cov(x, alpha, rho), 1e-8)) * eta;
}
model {
  rho ~ inv_gamma(5, 5);
  alpha ~ std_normal();
  a ~ std_normal();
  eta ~ std_normal();
  y ~ poisson_log(a + f);
}
