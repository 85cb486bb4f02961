// Negative binomial regression with (1 | g) + (1 + x | h), as brms writes it.
data {
  int<lower=1> N;
  array[N] int Y;
  int<lower=1> K; matrix[N, K] X; int<lower=1> Kc;
  int<lower=1> N_1; int<lower=1> M_1; array[N] int<lower=1> J_1; vector[N] Z_1_1;
  int<lower=1> N_2; int<lower=1> M_2; array[N] int<lower=1> J_2; vector[N] Z_2_1; vector[N] Z_2_2; int<lower=1> NC_2;
  int prior_only;
}
transformed data {
  matrix[N, Kc] Xc; vector[Kc] means_X;
  for (i in 2:K) { means_X[i - 1] = mean(X[, i]); Xc[, i - 1] = X[, i] - means_X[i - 1]; }
}
parameters {
  vector[Kc] b; real Intercept; real<lower=0> shape;
  vector<lower=0>[M_1] sd_1; array[M_1] vector[N_1] z_1;
  vector<lower=0>[M_2] sd_2; matrix[M_2, N_2] z_2; cholesky_factor_corr[M_2] L_2;
}
transformed parameters {
  vector[N_1] r_1_1; matrix[N_2, M_2] r_2; vector[N_2] r_2_1; vector[N_2] r_2_2; real lprior = 0;
  r_1_1 = (sd_1[1] * (z_1[1]));
  r_2 = (diag_pre_multiply(sd_2, L_2) * z_2)';
  r_2_1 = r_2[, 1]; r_2_2 = r_2[, 2];
  lprior += student_t_lpdf(Intercept | 3, 1.4, 2.5);
  lprior += gamma_lpdf(shape | 0.01, 0.01);
  lprior += student_t_lpdf(sd_1 | 3, 0, 2.5) - 1 * student_t_lccdf(0 | 3, 0, 2.5);
  lprior += student_t_lpdf(sd_2 | 3, 0, 2.5) - 2 * student_t_lccdf(0 | 3, 0, 2.5);
  lprior += lkj_corr_cholesky_lpdf(L_2 | 1);
}
model {
  if (!prior_only) {
    vector[N] mu = rep_vector(0.0, N);
    mu += Intercept;
    for (n in 1:N) { mu[n] += r_1_1[J_1[n]] * Z_1_1[n] + r_2_1[J_2[n]] * Z_2_1[n] + r_2_2[J_2[n]] * Z_2_2[n]; }
    target += neg_binomial_2_log_glm_lpmf(Y | Xc, mu, b, shape);
  }
  target += lprior;
  target += std_normal_lpdf(z_1[1]);
  target += std_normal_lpdf(to_vector(z_2));
}
generated quantities { real b_Intercept = Intercept - dot_product(means_X, b); }
