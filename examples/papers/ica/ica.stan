// Independent component analysis of prewhitened data (Korattikara et al. 2014, section 5.2).
// W is orthonormal because the sampler keeps it so; on that manifold |det W| is 1 and left out, and the prior is
// uniform. 1 / (4 cosh^2(s / 2)) is the standard logistic density of s.
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
  matrix[4, 4] W;
}
model {
  target += reduce_sum(partial_sum, time, 1, x, W);
}
