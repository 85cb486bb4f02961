// Logistic regression with a regularised horseshoe and effects of a grouping.
data { int<lower=1> N; int<lower=1> K; int<lower=1> J; array[N] int<lower=0, upper=1> y; matrix[N, K] x; array[N] int<lower=1, upper=J> g; }
parameters {
  real alpha; vector[K] z; vector<lower=0>[K] lambda; real<lower=0> tau; real<lower=0> slab; real<lower=0> omega; vector[J] v;
}
transformed parameters { vector[K] beta = tau * lambda .* z ./ sqrt(1 + square(tau * lambda / slab)); }
model {
  alpha ~ normal(0, 1); z ~ std_normal(); lambda ~ student_t(3, 0, 1); tau ~ normal(0, 0.5); slab ~ lognormal(0.5, 0.3);
  omega ~ normal(0, 1); v ~ normal(0, omega);
  y ~ bernoulli_logit(alpha + x * beta + v[g]);
}
