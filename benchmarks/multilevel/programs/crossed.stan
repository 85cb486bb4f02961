// Logistic regression with two crossed groupings: effects of one are centred, of the other a scale times a standard normal.
data {
  int<lower=0> N; int<lower=1> K; int<lower=1> J; int<lower=1> M;
  array[N] int<lower=0, upper=1> y;
  matrix[N, K] x;
  array[N] int<lower=1, upper=J> g;
  array[N] int<lower=1, upper=M> h;
}
parameters {
  real alpha; vector[K] beta;
  real<lower=0> tau; real<lower=0> omega;
  vector[J] u; vector[M] v_raw;
}
transformed parameters { vector[M] v = omega * v_raw; }
model {
  alpha ~ normal(0, 2); beta ~ normal(0, 1);
  tau ~ normal(0, 1); omega ~ normal(0, 1);
  u ~ normal(0, tau); v_raw ~ std_normal();
  y ~ bernoulli_logit(alpha + x * beta + u[g] + v[h]);
}
