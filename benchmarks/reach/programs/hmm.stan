// One sequence of a hidden Markov chain with two states, by the forward algorithm.
data {
  int<lower=1> T;
  vector[T] y;
}
parameters {
  array[2] simplex[2] theta;
  ordered[2] mu;
}
model {
  array[2] real acc;
  array[T, 2] real gamma;
  mu ~ normal(0, 3);
  for (k in 1:2) {
    gamma[1, k] = normal_lpdf(y[1] | mu[k], 1);
  }
  for (t in 2:T) {
    for (k in 1:2) {
      for (j in 1:2) {
        acc[j] = gamma[t - 1, j] + log(theta[j, k]) + normal_lpdf(y[t] | mu[k], 1);
      }
      gamma[t, k] = log_sum_exp(acc);
    }
  }
  target += log_sum_exp(gamma[T]);
}
