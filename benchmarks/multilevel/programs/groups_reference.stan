// The posterior of groups.stan in intercepts of groups, c = alpha + u, in which NUTS mixes well.
data {
  int<lower=1> N; int<lower=1> K; int<lower=1> J;
  array[N] int<lower=0, upper=1> y;
  matrix[N, K] x;
  array[N] int<lower=1, upper=J> g;
}
parameters { real alpha; vector[K] beta; real<lower=0> tau; vector[J] c; }
model {
  alpha ~ normal(0, 2); beta ~ normal(0, 1); tau ~ normal(0, 1);
  c ~ normal(alpha, tau);
  y ~ bernoulli_logit_glm(x, c[g], beta);
}
generated quantities { vector[J] u = c - alpha; }
