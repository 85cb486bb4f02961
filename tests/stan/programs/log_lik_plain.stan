functions {
  real log_lik_i(int i, array[] int y, array[] row_vector x, real alpha, vector beta) {
    return bernoulli_logit_lpmf(y[i] | alpha + x[i] * beta);
  }
  real log_lik_lipschitz_i(int i, array[] row_vector x) {
    return sqrt(1 + dot_self(x[i])) / 4;
  }
  real log_lik_range(real alpha, vector beta, real alpha_new, vector beta_new, real largest) {
    return largest * sqrt(square(alpha_new - alpha) + squared_distance(beta, beta_new));
  }
}
data {
  int<lower=0> N, K;
  array[N] int<lower=0, upper=1> y;
  array[N] row_vector[K] x;
}
transformed data {
  real largest = 0;
  for (n in 1 : N) largest = fmax(largest, sqrt(1 + dot_self(x[n])));
}
parameters {
  real alpha;
  vector[K] beta;
}
model {
  alpha ~ normal(0, 1);
  beta ~ normal(0, 1);
  for (i in 1 : N) target += log_lik_i(i, y, x, alpha, beta); // the likelihood
}
