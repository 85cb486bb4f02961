// The same by Stan's own function.
data {
  int<lower=1> T;
  array[T] real y;
}
parameters {
  simplex[2] t1;
  simplex[2] t2;
  simplex[2] rho;
  ordered[2] mu;
}
transformed parameters {
  matrix[2, T] lo;
  matrix[2, 2] Gamma = [t1', t2'];
  for (t in 1 : T) {
    lo[1, t] = normal_lpdf(y[t] | mu[1], 1);
    lo[2, t] = normal_lpdf(y[t] | mu[2], 1);
  }
}
model {
  target += hmm_marginal(lo, Gamma, rho);
}

