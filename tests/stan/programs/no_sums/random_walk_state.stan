// Increments of a random walk as parameters.
data {
  int T;
  vector[T] y;
}
parameters {
  vector[T] z;
  real<lower=0> q;
  real<lower=0> s;
}
model {
  vector[T] x = q * cumulative_sum(z);
  z ~ std_normal();
  y ~ normal(x, s);
}

