// Linear regression on a predictor that is measured with error.
data {
  int<lower=1> N;
  vector[N] Y;
  int<lower=1> K;
  matrix[N, K] X;
  int<lower=1> Kc;
  vector[N] Xn_1;
  vector<lower=0>[N] noise_1;
  int prior_only;
}
transformed data {
  matrix[N, Kc] Xc;
  vector[Kc] means_X;
  for (i in 2:K) {
    means_X[i - 1] = mean(X[, i]);
    Xc[, i - 1] = X[, i] - means_X[i - 1];
  }
}
parameters {
  vector[Kc] b;
  real Intercept;
  real<lower=0> sigma;
  vector[N] zme_1;
  real meanme_1;
  real<lower=0> sdme_1;
  real bsp;
}
transformed parameters {
  vector[N] Xme_1;
  real lprior = 0;
  Xme_1 = meanme_1 + sdme_1 * zme_1;
  lprior += normal_lpdf(b | 0, 2);
  lprior += student_t_lpdf(Intercept | 3, 0, 2.5);
  lprior += student_t_lpdf(sigma | 3, 0, 2.5) - 1 * student_t_lccdf(0 | 3, 0, 2.5);
  lprior += normal_lpdf(bsp | 0, 1);
  lprior += normal_lpdf(meanme_1 | 0, 2);
  lprior += normal_lpdf(sdme_1 | 0, 2) - 1 * normal_lccdf(0 | 0, 2);
}
model {
  if (!prior_only) {
    vector[N] mu = rep_vector(0.0, N);
    mu += Intercept + Xc * b;
    for (n in 1:N) {
      mu[n] += bsp * Xme_1[n];
    }
    target += normal_lpdf(Y | mu, sigma);
  }
  target += lprior;
  target += normal_lpdf(Xn_1 | Xme_1, noise_1);
  target += std_normal_lpdf(zme_1);
}
generated quantities {
  real b_Intercept = Intercept - dot_product(means_X, b);
}
