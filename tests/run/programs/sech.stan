// Errors with the density 1 / (pi cosh), of which no family is known, and a bound on third derivatives in a metric.
functions {
  real log_lik_i(int i, vector y, vector x, real a, real b) {
    return -log(cosh(y[i] - a - b * x[i]));
  }
  // That of log cosh is at most 4 / (3 sqrt(3)), times the cubed length of the covariates in the metric.
  real log_lik_third_derivative_i(int i, vector x, matrix metric) {
    vector[2] z = [1, x[i]]';
    return 4 / (3 * sqrt(3)) * sqrt(dot_self(metric' * z)) ^ 3;
  }
}
data {
  int<lower=0> N;
  vector[N] y;
  vector[N] x;
}
parameters {
  real a;
  real b;
}
model {
  a ~ normal(0, 3);
  b ~ normal(0, 3);
  for (i in 1 : N) target += log_lik_i(i, y, x, a, b);
}
