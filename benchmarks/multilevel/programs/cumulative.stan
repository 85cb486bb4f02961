// Ordered categories with group effects.
data {
  int<lower=1> N; int<lower=2> C; int<lower=1> K; int<lower=1> J;
  array[N] int<lower=1, upper=C> y;
  matrix[N, K] x;
  array[N] int<lower=1, upper=J> g;
}
parameters { ordered[C - 1] cut; vector[K] beta; real<lower=0> tau; vector[J] z; }
transformed parameters { vector[J] u = tau * z; }
model {
  cut ~ normal(0, 3); beta ~ normal(0, 1); tau ~ normal(0, 1); z ~ std_normal();
  y ~ ordered_logistic(x * beta + u[g], cut);
}
