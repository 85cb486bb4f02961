// Two linear regressions with correlated residuals.
data {
  int<lower=1> N;
  vector[N] Y_u;
  vector[N] Y_v;
  int<lower=1> K_u;
  matrix[N, K_u] X_u;
  int<lower=1> Kc_u;
  int<lower=1> nresp;
  int nrescor;
  int prior_only;
}
transformed data {
  matrix[N, Kc_u] Xc_u;
  vector[Kc_u] means_X_u;
  array[N] vector[nresp] Y;
  for (i in 2:K_u) {
    means_X_u[i - 1] = mean(X_u[, i]);
    Xc_u[, i - 1] = X_u[, i] - means_X_u[i - 1];
  }
  for (n in 1:N) {
    Y[n] = transpose([Y_u[n], Y_v[n]]);
  }
}
parameters {
  vector[Kc_u] b_u;
  real Intercept_u;
  real<lower=0> sigma_u;
  real Intercept_v;
  real<lower=0> sigma_v;
  cholesky_factor_corr[nresp] Lrescor;
}
transformed parameters {
  real lprior = 0;
  lprior += normal_lpdf(b_u | 0, 2);
  lprior += student_t_lpdf(Intercept_u | 3, 0, 2.5);
  lprior += student_t_lpdf(sigma_u | 3, 0, 2.5) - 1 * student_t_lccdf(0 | 3, 0, 2.5);
  lprior += student_t_lpdf(Intercept_v | 3, 0, 2.5);
  lprior += student_t_lpdf(sigma_v | 3, 0, 2.5) - 1 * student_t_lccdf(0 | 3, 0, 2.5);
  lprior += lkj_corr_cholesky_lpdf(Lrescor | 1);
}
model {
  if (!prior_only) {
    vector[N] mu_u = rep_vector(0.0, N);
    vector[N] mu_v = rep_vector(0.0, N);
    array[N] vector[nresp] Mu;
    vector[nresp] sigma = transpose([sigma_u, sigma_v]);
    matrix[nresp, nresp] LSigma = diag_pre_multiply(sigma, Lrescor);
    mu_u += Intercept_u + Xc_u * b_u;
    mu_v += Intercept_v;
    for (n in 1:N) {
      Mu[n] = transpose([mu_u[n], mu_v[n]]);
    }
    target += multi_normal_cholesky_lpdf(Y | Mu, LSigma);
  }
  target += lprior;
}
generated quantities {
  real b_u_Intercept = Intercept_u - dot_product(means_X_u, b_u);
  real b_v_Intercept = Intercept_v;
  corr_matrix[nresp] Rescor = multiply_lower_tri_self_transpose(Lrescor);
}
