// A level that takes a random walk, observed with noise.
data {
  int<lower=1> T;
  vector[T] y;
}
parameters {
  vector[T] step;
  real<lower=0> sigma_level;
  real<lower=0> sigma;
}
transformed parameters {
  vector[T] level = cumulative_sum(sigma_level * step);
}
model {
  step ~ std_normal();
  sigma_level ~ normal(0, 1);
  sigma ~ normal(0, 1);
  y ~ normal(level, sigma);
}
