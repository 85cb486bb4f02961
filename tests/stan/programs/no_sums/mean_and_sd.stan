// The mean and the sd of a sample alone are modelled.
data {
  int<lower=2> N;
  vector[N] y;
}
parameters {
  real mu;
  real<lower=0> sigma;
}
model {
  mu ~ normal(0, 5);
  sigma ~ exponential(1);
  mean(y) ~ student_t(N - 1, mu, sigma / sqrt(N));
  sd(y) ~ normal(sigma, sigma / sqrt(2 * N));
}
