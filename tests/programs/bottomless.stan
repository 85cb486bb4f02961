// Calls itself without end unless there are as many observations as were counted.
functions {
  real climb(int steps, real mu) {
    return steps == 0 ? 0.0 : mu + climb(steps - 1, mu);
  }
}
data {
  int<lower=0> N;
  int<lower=0> counted;
  vector[N] y;
}
parameters {
  real mu;
}
model {
  target += climb(N - counted, mu);
  y ~ normal(mu, 1);
}
