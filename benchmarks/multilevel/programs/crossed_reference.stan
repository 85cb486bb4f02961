// The posterior of crossed.stan in intercepts of the first grouping, c = alpha + u, and in effects of the second, in
// which NUTS mixes well.
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
  vector[J] c; vector[M] v;
}
model {
  alpha ~ normal(0, 2); beta ~ normal(0, 1);
  tau ~ normal(0, 1); omega ~ normal(0, 1);
  c ~ normal(alpha, tau); v ~ normal(0, omega);
  y ~ bernoulli_logit_glm(x, c[g] + v[h], beta);
}
generated quantities { vector[J] u = c - alpha; vector[M] v_raw = v / omega; }
