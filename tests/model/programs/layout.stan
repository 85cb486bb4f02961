// Gives every element of its data back, in the order in which Stan stores them.
data {
  int<lower=0> N;
  int<lower=0> K;
  vector[N] y;
  array[N] int<lower=0> z;
  matrix[N, K] x;
  matrix[K, N] w;
  array[2, N] row_vector[K] r;
  array[N, K] int m;
  array[N] complex c;
  array[K] real fixed;
  complex one;
  real s;
}
parameters {
  real mu;
}
model {
  mu ~ normal(0, 1);
}
generated quantities {
  int n_rows = N;
  vector[N] y_ = y;
  array[N] int z_ = z;
  matrix[N, K] x_ = x;
  matrix[K, N] w_ = w;
  array[2, N] row_vector[K] r_ = r;
  array[N, K] int m_ = m;
  array[N] complex c_ = c;
  array[K] real fixed_ = fixed;
  complex one_ = one;
  real s_ = s;
}
