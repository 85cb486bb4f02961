// Effects of neighbours, one for each observation.
data {
  int N;
  int E;
  array[E] int n1;
  array[E] int n2;
  array[N] int y;
  vector[N] x;
}
parameters {
  real b0;
  real b1;
  vector[N] phi;
}
model {
  target += -0.5 * dot_self(phi[n1] - phi[n2]);
  sum(phi) ~ normal(0, 0.001 * N);
  y ~ poisson_log(b0 + b1 * x + phi);
}

