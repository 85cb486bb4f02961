// Effects of neighbouring areas, of which each has many observations.
data {
  int N;
  int J;
  array[N] int area;
  int E;
  array[E] int n1;
  array[E] int n2;
  array[N] int y;
  vector[N] x;
}
parameters {
  real b0;
  real b1;
  vector[J] phi;
}
model {
  target += -0.5 * dot_self(phi[n1] - phi[n2]);
  sum(phi) ~ normal(0, 0.001 * J);
  y ~ poisson_log(b0 + b1 * x + phi[area]);
}

