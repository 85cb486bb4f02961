// An effect of its own for each observation.
data {
  int N;
  array[N] int y;
}
parameters {
  real mu;
  real<lower=0> tau;
  vector[N] z;
}
model {
  z ~ std_normal();
  y ~ poisson_log(mu + tau * z);
}

