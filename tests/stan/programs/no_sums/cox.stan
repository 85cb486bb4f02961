// Cox partial likelihood, data in order of falling times.
data {
  int N;
  int K;
  matrix[N, K] x;
  array[N] int d;
}
parameters {
  vector[K] b;
}
model {
  vector[N] eta = x * b;
  b ~ normal(0, 1);
  for (n in 1 : N) {
    if (d[n] == 1) {
      target += eta[n] - log_sum_exp(eta[n : N]);
    }
  }
}

