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
  array[N] cov_matrix[2] Sigma;
  corr_matrix[2] R;
  cholesky_factor_cov[2] L;
  array[2] cholesky_factor_cov[3, 2] T;
  cholesky_factor_corr[2] C;
  array[N] simplex[3] p;
  ordered[2] o;
  positive_ordered[2] q;
  unit_vector[2] u;
  complex_matrix[2, N] Z;
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
  array[N] matrix[2, 2] Sigma_ = Sigma;
  matrix[2, 2] R_ = R;
  matrix[2, 2] L_ = L;
  array[2] matrix[3, 2] T_ = T;
  matrix[2, 2] C_ = C;
  array[N] vector[3] p_ = p;
  vector[2] o_ = o;
  vector[2] q_ = q;
  vector[2] u_ = u;
  complex_matrix[2, N] Z_ = Z;
}
