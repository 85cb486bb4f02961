// A random walk over bins, of which each has many observations.
data {
  int N;
  int T;
  array[N] int bin;
  array[N] int y;
}
parameters {
  vector[T] z;
  real<lower=0> s;
}
transformed parameters {
  vector[T] h;
  h[1] = z[1];
  for (t in 2 : T) {
    h[t] = h[t - 1] + s * z[t];
  }
}
model {
  z ~ std_normal();
  y ~ poisson_log(h[bin]);
}

