// Choices with a random taste, integrated over draws: the posterior is skewed where the sd of the taste is near 0.
data {
  int<lower=1> N;
  int<lower=1> D;
  vector[N] x;
  array[N] int<lower=0, upper=1> y;
  matrix[N, D] nu;
}
parameters {
  real a;
  real b;
  real<lower=0> sigma;
}
model {
  a ~ normal(0, 2);
  b ~ normal(0, 2);
  sigma ~ normal(0, 1);
  for (n in 1:N) {
    vector[D] lp;
    for (d in 1:D) lp[d] = bernoulli_logit_lpmf(y[n] | a + (b + sigma * nu[n, d]) * x[n]);
    target += log_sum_exp(lp) - log(D);
  }
}
