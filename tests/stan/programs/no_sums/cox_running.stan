// Cox partial likelihood, data in order of falling times: those at risk in a running sum.
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
  real at_risk = negative_infinity();
  b ~ normal(0, 1);
  for (n in 1 : N) {
    at_risk = log_sum_exp(at_risk, eta[n]);
    if (d[n] == 1) {
      target += eta[n] - at_risk;
    }
  }
}
