// Multinomial logistic regression.
data {
  int<lower=1> N;
  int<lower=2> ncat;
  array[N] int Y;
  int<lower=1> K_mu2;
  matrix[N, K_mu2] X_mu2;
  int<lower=1> Kc_mu2;
  int<lower=1> K_mu3;
  matrix[N, K_mu3] X_mu3;
  int<lower=1> Kc_mu3;
  int prior_only;
}
transformed data {
  matrix[N, Kc_mu2] Xc_mu2;
  vector[Kc_mu2] means_X_mu2;
  matrix[N, Kc_mu3] Xc_mu3;
  vector[Kc_mu3] means_X_mu3;
  for (i in 2:K_mu2) {
    means_X_mu2[i - 1] = mean(X_mu2[, i]);
    Xc_mu2[, i - 1] = X_mu2[, i] - means_X_mu2[i - 1];
  }
  for (i in 2:K_mu3) {
    means_X_mu3[i - 1] = mean(X_mu3[, i]);
    Xc_mu3[, i - 1] = X_mu3[, i] - means_X_mu3[i - 1];
  }
}
parameters {
  vector[Kc_mu2] b_mu2;
  real Intercept_mu2;
  vector[Kc_mu3] b_mu3;
  real Intercept_mu3;
}
transformed parameters {
  real lprior = 0;
  lprior += normal_lpdf(b_mu2 | 0, 2);
  lprior += student_t_lpdf(Intercept_mu2 | 3, 0, 2.5);
  lprior += normal_lpdf(b_mu3 | 0, 2);
  lprior += student_t_lpdf(Intercept_mu3 | 3, 0, 2.5);
}
model {
  if (!prior_only) {
    vector[N] mu2 = rep_vector(0.0, N);
    vector[N] mu3 = rep_vector(0.0, N);
    array[N] vector[ncat] mu;
    mu2 += Intercept_mu2 + Xc_mu2 * b_mu2;
    mu3 += Intercept_mu3 + Xc_mu3 * b_mu3;
    for (n in 1:N) {
      mu[n] = transpose([0, mu2[n], mu3[n]]);
    }
    for (n in 1:N) {
      target += categorical_logit_lpmf(Y[n] | mu[n]);
    }
  }
  target += lprior;
}
generated quantities {
  real b_mu2_Intercept = Intercept_mu2 - dot_product(means_X_mu2, b_mu2);
  real b_mu3_Intercept = Intercept_mu3 - dot_product(means_X_mu3, b_mu3);
}
