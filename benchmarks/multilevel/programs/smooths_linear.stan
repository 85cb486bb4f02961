// Smooth terms as brms writes them: s(x1) and s(x2, by = f), each with one block of basis functions.
data {
  int<lower=1> N; vector[N] Y;
  int<lower=1> K; matrix[N, K] X; int<lower=1> Kc;
  int<lower=1> Ks; matrix[N, Ks] Xs;
  int<lower=1> knots_1; matrix[N, knots_1] Zs_1_1;
  int<lower=1> knots_2; matrix[N, knots_2] Zs_2_1;
  int<lower=1> knots_3; matrix[N, knots_3] Zs_3_1;
  int prior_only;
}
transformed data {
  matrix[N, Kc] Xc; vector[Kc] means_X;
  for (i in 2:K) { means_X[i - 1] = mean(X[, i]); Xc[, i - 1] = X[, i] - means_X[i - 1]; }
}
parameters {
  vector[Kc] b; real Intercept; vector[Ks] bs; real<lower=0> sigma;
  vector[knots_1] zs_1_1; vector<lower=0>[1] sds_1;
  vector[knots_2] zs_2_1; vector<lower=0>[1] sds_2;
  vector[knots_3] zs_3_1; vector<lower=0>[1] sds_3;
}
transformed parameters {
  vector[knots_1] s_1_1; vector[knots_2] s_2_1; vector[knots_3] s_3_1; real lprior = 0;
  s_1_1 = sds_1[1] * zs_1_1; s_2_1 = sds_2[1] * zs_2_1; s_3_1 = sds_3[1] * zs_3_1;
  lprior += normal_lpdf(b | 0, 2);
  lprior += student_t_lpdf(Intercept | 3, 0, 2.5);
  lprior += normal_lpdf(bs | 0, 3);
  lprior += student_t_lpdf(sds_1 | 3, 0, 2.5) - 1 * student_t_lccdf(0 | 3, 0, 2.5);
  lprior += student_t_lpdf(sds_2 | 3, 0, 2.5) - 1 * student_t_lccdf(0 | 3, 0, 2.5);
  lprior += student_t_lpdf(sds_3 | 3, 0, 2.5) - 1 * student_t_lccdf(0 | 3, 0, 2.5);
  lprior += student_t_lpdf(sigma | 3, 0, 2.5) - 1 * student_t_lccdf(0 | 3, 0, 2.5);
}
model {
  if (!prior_only) {
    vector[N] mu = rep_vector(0.0, N);
    mu += Intercept + Xs * bs + Zs_1_1 * s_1_1 + Zs_2_1 * s_2_1 + Zs_3_1 * s_3_1;
    target += normal_id_glm_lpdf(Y | Xc, mu, b, sigma);
  }
  target += lprior;
  target += std_normal_lpdf(zs_1_1);
  target += std_normal_lpdf(zs_2_1);
  target += std_normal_lpdf(zs_3_1);
}
