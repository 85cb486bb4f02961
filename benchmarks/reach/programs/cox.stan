// Cox's partial likelihood; times fall, so that who is at risk comes first.
data {
  int<lower=1> N;
  int<lower=1> K;
  matrix[N, K] x;
  array[N] int<lower=0, upper=1> event;
}
parameters {
  vector[K] beta;
}
model {
  vector[N] eta = x * beta;
  real at_risk = negative_infinity();
  beta ~ normal(0, 2);
  for (n in 1:N) {
    at_risk = log_sum_exp(at_risk, eta[n]);
    if (event[n]) {
      target += eta[n] - at_risk;
    }
  }
}
