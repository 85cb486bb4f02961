// A reduce_sum over some observations, and others of another kind beside it.
functions {
  real partial_sum(array[] real slice, int start, int end, vector x, real alpha, real beta, real sigma) {
    return normal_lpdf(slice | alpha + beta * x[start : end], sigma);
  }
}
data {
  int<lower=1> N;
  int<lower=1> M;
  array[N] real y;
  vector[N] x;
  array[M] int<lower=0> count;
}
parameters {
  real alpha;
  real beta;
  real<lower=0> sigma;
}
model {
  alpha ~ normal(0, 2);
  beta ~ normal(0, 2);
  sigma ~ exponential(1);
  target += reduce_sum(partial_sum, y, 10, x, alpha, beta, sigma);
  count ~ poisson_log(alpha);
}
