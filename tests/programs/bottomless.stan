// Calls itself without end unless there are as many observations as were counted.
functions {
  real climb(int steps) {
    return steps == 0 ? 0.0 : 1 + climb(steps - 1);
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
  target += climb(N - counted);
  y ~ normal(mu, 1);
}
