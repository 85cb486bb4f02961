// The posterior of negative_binomial.stan with intercepts of the first grouping, and the first slope, at the mean effects
// of the second, and with effects of the second, in which NUTS mixes well.
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
  vector[Kc] slopes; real centre; real<lower=0> shape;
  vector<lower=0>[M_1] sd_1; vector[N_1] c;
  vector<lower=0>[M_2] sd_2; array[N_2] vector[M_2] r_2; cholesky_factor_corr[M_2] L_2;
}
transformed parameters {
  real shift = mean(r_2[, 1]), tilt = mean(r_2[, 2]), Intercept = centre - shift;
  vector[Kc] b = slopes;
  b[1] -= tilt;
}
model {
  vector[N] mu = c[J_1] - shift + tilt * means_X[1];
  for (n in 1:N) mu[n] += r_2[J_2[n], 1] + (r_2[J_2[n], 2] - tilt) * Z_2_2[n];
  Y ~ neg_binomial_2_log_glm(Xc, mu, slopes, shape);
  Intercept ~ student_t(3, 1.4, 2.5); shape ~ gamma(0.01, 0.01);
  sd_1 ~ student_t(3, 0, 2.5); sd_2 ~ student_t(3, 0, 2.5); L_2 ~ lkj_corr_cholesky(1);
  c ~ normal(centre, sd_1[1]);
  r_2 ~ multi_normal_cholesky(rep_vector(0, M_2), diag_pre_multiply(sd_2, L_2));
}
generated quantities {
  array[M_1] vector[N_1] z_1;
  matrix[M_2, N_2] z_2;
  z_1[1] = (c - centre) / sd_1[1];
  for (j in 1:N_2) z_2[, j] = mdivide_left_tri_low(diag_pre_multiply(sd_2, L_2), r_2[j]);
}
