// Some rows are held back: expressions of data as arguments, a likelihood that can be switched off.
functions {
  real part_lpdf(array[] real y, int start, int end, matrix x, array[] int rows, vector beta, real sigma) {
    return normal_lpdf(y | x[rows[start : end]] * beta, sigma);
  }
}
data {
  int<lower=0> N;
  int<lower=1> K;
  int<lower=0, upper=N> T;
  array[T] int<lower=1, upper=N> training;
  array[N] real y;
  matrix[N, K] x;
  int<lower=0, upper=1> prior_only;
}
parameters {
  vector[K] beta;
  real<lower=0> sigma;
}
model {
  if (!prior_only) {
    profile("likelihood") {
      target += reduce_sum_static(part_lupdf, y[training], 1, x, training, beta, sigma);
    }
  }
  beta ~ normal(0, 2);
  sigma ~ exponential(1);
}
generated quantities {
  vector[N - T] held_back;
}
