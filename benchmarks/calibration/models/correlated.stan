// Counts with correlated intercepts and slopes by one grouping, as multiples of standard normals, and centred effects of
// another one.
data {
  int<lower=0> N;
  int<lower=1> J;
  int<lower=1> K;
  vector[N] x;
  array[N] int<lower=1, upper=J> g;
  array[N] int<lower=1, upper=K> h;
  array[N] int<lower=0> y;
}
parameters {
  real alpha;
  real beta;
  real<lower=0> shape;
  vector<lower=0>[2] sigma;
  cholesky_factor_corr[2] L;
  matrix[2, J] z;
  real<lower=0> tau;
  vector[K] v;
}
transformed parameters {
  matrix[J, 2] u = (diag_pre_multiply(sigma, L) * z)';
}
model {
  alpha ~ normal(0.5, 0.5);
  beta ~ normal(0, 0.3);
  shape ~ lognormal(0.7, 0.4);
  sigma ~ lognormal(-0.7, 0.4);
  L ~ lkj_corr_cholesky(2);
  to_vector(z) ~ std_normal();
  tau ~ lognormal(-0.7, 0.4);
  v ~ normal(0, tau);
  y ~ neg_binomial_2_log(alpha + beta * x + u[g, 1] + u[g, 2] .* x + v[h], shape);
}
