// Robust regression with each observation's log likelihood in a function.
functions {
  real log_lik_i(int i, vector y, matrix x, real alpha, vector beta, real sigma) {
    return student_t_lpdf(y[i] | 4, alpha + x[i] * beta, sigma);
  }
}
data {
  int<lower=0> N;
  int<lower=1> K;
  matrix[N, K] x;
  vector[N] y;
}
parameters {
  real alpha;
  vector[K] beta;
  real<lower=0> sigma;
}
model {
  alpha ~ normal(0, 5);
  beta ~ normal(0, 2);
  sigma ~ exponential(1);
  for (i in 1:N) target += log_lik_i(i, y, x, alpha, beta, sigma);
}
