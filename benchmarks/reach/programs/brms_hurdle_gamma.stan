// Gamma regression with a hurdle at zero that has a predictor.
functions {
  real hurdle_gamma_logit_lpdf(real y, real alpha, real beta, real hu) {
    if (y == 0) {
      return bernoulli_logit_lpmf(1 | hu);
    }
    return bernoulli_logit_lpmf(0 | hu) + gamma_lpdf(y | alpha, beta);
  }
}
data {
  int<lower=1> N;
  vector[N] Y;
  int<lower=1> K;
  matrix[N, K] X;
  int<lower=1> Kc;
  int<lower=1> K_hu;
  matrix[N, K_hu] X_hu;
  int<lower=1> Kc_hu;
  int prior_only;
}
transformed data {
  matrix[N, Kc] Xc;
  vector[Kc] means_X;
  matrix[N, Kc_hu] Xc_hu;
  vector[Kc_hu] means_X_hu;
  for (i in 2:K_hu) {
    means_X_hu[i - 1] = mean(X_hu[, i]);
    Xc_hu[, i - 1] = X_hu[, i] - means_X_hu[i - 1];
  }
  for (i in 2:K) {
    means_X[i - 1] = mean(X[, i]);
    Xc[, i - 1] = X[, i] - means_X[i - 1];
  }
}
parameters {
  vector[Kc] b;
  real Intercept;
  real<lower=0> shape;
  vector[Kc_hu] b_hu;
  real Intercept_hu;
}
transformed parameters {
  real lprior = 0;
  lprior += normal_lpdf(b | 0, 2);
  lprior += student_t_lpdf(Intercept | 3, 0, 2.5);
  lprior += gamma_lpdf(shape | 2, 1);
  lprior += normal_lpdf(b_hu | 0, 2);
  lprior += logistic_lpdf(Intercept_hu | 0, 1);
}
model {
  if (!prior_only) {
    vector[N] mu = rep_vector(0.0, N);
    mu += Intercept + Xc * b;
    vector[N] hu = rep_vector(0.0, N);
    hu += Intercept_hu + Xc_hu * b_hu;
    mu = exp(mu);
    for (n in 1:N) {
      target += hurdle_gamma_logit_lpdf(Y[n] | shape, shape / mu[n], hu[n]);
    }
  }
  target += lprior;
}
generated quantities {
  real b_Intercept = Intercept - dot_product(means_X, b);
  real b_hu_Intercept = Intercept_hu - dot_product(means_X_hu, b_hu);
}
