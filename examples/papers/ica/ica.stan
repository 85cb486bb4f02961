// Independent component analysis of prewhitened data (Korattikara et al. 2014, section 5.2), with a uniform prior on
// the orthonormal unmixing matrices W. 1 / (4 cosh^2(s / 2)) is the standard logistic density of s; |det W| is 1.
functions {
  real partial_sum(array[] int slice, int start, int end, matrix x, matrix W) {
    return logistic_lpdf(to_vector(W * x[ : , start : end]) | 0, 1);
  }
}
data {
  // 0: A is W, for a sampler that keeps to the orthonormal matrices. 1: A is free and W its polar factor, for samplers
  // of the whole space; where the elements of A are standard normal, W is uniform.
  int<lower=0, upper=1> free;
  int<lower=0> N;
  array[N] int<lower=1> time;
  matrix[4, N] x;
}
parameters {
  matrix[4, 4] A;
}
transformed parameters {
  matrix[4, 4] W = A;
  if (free) {
    matrix[4, 4] V = eigenvectors_sym(tcrossprod(A));
    vector[4] roots = sqrt(eigenvalues_sym(tcrossprod(A)));
    W = V * diag_pre_multiply(inv(roots), V' * A);
  }
}
model {
  if (free) {
    to_vector(A) ~ std_normal();
  }
  target += reduce_sum(partial_sum, time, 1, x, W);
}
