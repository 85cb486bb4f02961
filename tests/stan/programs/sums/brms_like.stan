// Laid out as brms does: predictors centred in transformed data, group terms added in a loop, a switch for the prior.
data {
  int<lower=1> N;
  vector[N] Y;
  int<lower=1> K;
  matrix[N, K] X;
  int<lower=1> N_1;
  array[N] int<lower=1> J_1;
  vector[N] Z_1_1;
  int prior_only;
  array[N] int<lower=1, upper=N> partner;
}
transformed data {
  int Kc = K - 1;
  matrix[N, Kc] Xc;
  vector[Kc] means_X;
  for (i in 2 : K) {
    means_X[i - 1] = mean(X[ : , i]);
    Xc[ : , i - 1] = X[ : , i] - means_X[i - 1];
  }
}
parameters {
  vector[Kc] b;
  real Intercept;
  real<lower=0> sigma;
  real<lower=0> sd_1;
  vector[N_1] z_1;
  real rho;
}
transformed parameters {
  vector[N_1] r_1_1 = sd_1 * z_1;
  real lprior = 0;
  lprior += student_t_lpdf(Intercept | 3, 0, 2.5);
  lprior += student_t_lpdf(sigma | 3, 0, 2.5) - student_t_lccdf(0 | 3, 0, 2.5);
  lprior += student_t_lpdf(sd_1 | 3, 0, 2.5) - student_t_lccdf(0 | 3, 0, 2.5);
  lprior += normal_lpdf(rho | 0, 1);
}
model {
  if (!prior_only) {
    vector[N] mu = rep_vector(0.0, N);
    mu += Intercept + Xc * b;
    for (n in 1 : N) {
      mu[n] += r_1_1[J_1[n]] * Z_1_1[n] + rho * Y[partner[n]];
    }
    target += normal_lpdf(Y | mu, sigma);
  }
  target += lprior;
  target += std_normal_lpdf(z_1);
}
generated quantities {
  real b_Intercept = Intercept - dot_product(means_X, b);
}
