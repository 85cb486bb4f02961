// Poisson regression with group effects that are a scale times a standard normal, by reduce_sum.
functions {
  real partial(array[] int y, int start, int end, vector x, array[] int g, real alpha, real beta, vector u) {
    return poisson_log_lpmf(y | alpha + beta * x[start:end] + u[g[start:end]]);
  }
}
data { int<lower=0> N; int<lower=1> J; array[N] int<lower=0> y; vector[N] x; array[N] int<lower=1, upper=J> g; }
parameters { real alpha; real beta; real<lower=0> tau; vector[J] z; }
transformed parameters { vector[J] u = tau * z; }
model {
  alpha ~ normal(0, 2); beta ~ normal(0, 1); tau ~ normal(0, 1); z ~ std_normal();
  target += reduce_sum(partial, y, 1000, x, g, alpha, beta, u);
}
