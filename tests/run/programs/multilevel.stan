// Logistic regression with two groupings: effects that are a scale times a standard normal, and centred ones.
data {
  int<lower=0> N;
  int<lower=1> J;
  int<lower=1> K;
  array[N] int<lower=0, upper=1> y;
  vector[N] x;
  array[N] int<lower=1, upper=J> g;
  array[N] int<lower=1, upper=K> h;
}
parameters {
  real alpha;
  real beta;
  real<lower=0> sigma;
  real<lower=0> tau;
  vector[J] z;
  vector[K] v;
}
transformed parameters {
  vector[J] u = sigma * z;
}
model {
  alpha ~ normal(0, 2);
  beta ~ normal(0, 1);
  sigma ~ normal(0, 1);
  tau ~ normal(0, 1);
  z ~ std_normal();
  v ~ normal(0, tau);
  for (n in 1 : N)
    y[n] ~ bernoulli_logit(alpha + beta * x[n] + u[g[n]] + v[h[n]]);
}
