functions {
  real partial_lpmf(array[] int y, int start, int end, matrix x, array[] int training, data vector w,
                    array[] row_vector rows, vector beta, real total, real scale) {
    return sum(w[start : end]) * 0 + bernoulli_logit_lupmf(y | x[training[start : end]] * beta * scale) + total * 0
           + sum(rows[start : end][1]) * 0;
  }
}
data {
  int<lower=0> N;
  int<lower=0> K;
  array[N] int<lower=0, upper=1> y;
  array[N] real w;
  matrix[K, N] x;
  int<lower=0> T;
  array[T] int<lower=1, upper=N> training;
  array[N] row_vector[K] rows;
}
parameters {
  vector[K] beta;
  vector<offset=1, multiplier=2>[2] z;
}
model {
  int grainsize = 1, other = 2;
  real ll = std_normal_lpdf(beta);
  profile("likelihood") {
    ll += reduce_sum(partial_lupmf, y[training], grainsize, x', training, to_vector(w)[training], rows[training], beta, sum(w), z[1] + other);
    target += ll + std_normal_lpdf(z);
  }
}
