// A state of its own for each observation, centred.
data {
  int T;
  vector[T] y;
}
parameters {
  vector[T] x;
  real phi;
  real<lower=0> s;
  real<lower=0> q;
}
model {
  x[1] ~ normal(0, 1);
  for (t in 2 : T) {
    x[t] ~ normal(phi * x[t - 1], q);
  }
  y ~ normal(x, s);
}

