// Linear regression whose errors have a known covariance up to a factor.
data {
  int<lower=1> N;
  vector[N] x;
  vector[N] y;
  cov_matrix[N] V;
}
parameters {
  real alpha;
  real beta;
  real<lower=0> sigma;
}
model {
  alpha ~ normal(0, 5);
  beta ~ normal(0, 5);
  sigma ~ exponential(1);
  y ~ multi_normal(alpha + beta * x, square(sigma) * V);
}
