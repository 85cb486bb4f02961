// The same posterior without a constraint: the polar factor W of a free matrix A. With standard normal elements of A it
// is uniform on the orthonormal matrices, and so is the prior of W.
functions {
  real partial_sum(array[] int slice, int start, int end, matrix x, matrix W) {
    return logistic_lpdf(to_vector(W * x[ : , start : end]) | 0, 1);
  }
}
data {
  int<lower=0> N;
  array[N] int<lower=1> time;
  matrix[4, N] x;
}
parameters {
  matrix[4, 4] A;
}
transformed parameters {
  matrix[4, 4] W;
  {
    matrix[4, 4] V = eigenvectors_sym(tcrossprod(A));
    vector[4] root = sqrt(eigenvalues_sym(tcrossprod(A)));
    W = V * diag_pre_multiply(inv(root), V' * A);
  }
}
model {
  to_vector(A) ~ std_normal();
  target += reduce_sum(partial_sum, time, 1, x, W);
}
