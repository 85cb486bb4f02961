// The posterior of poisson.stan in intercepts of groups, c = alpha + u, in which NUTS mixes well.
data { int<lower=0> N; int<lower=1> J; array[N] int<lower=0> y; vector[N] x; array[N] int<lower=1, upper=J> g; }
transformed data { matrix[N, 1] design = to_matrix(x, N, 1); }
parameters { real alpha; real beta; real<lower=0> tau; vector[J] c; }
model {
  alpha ~ normal(0, 2); beta ~ normal(0, 1); tau ~ normal(0, 1);
  c ~ normal(alpha, tau);
  y ~ poisson_log_glm(design, c[g], [beta]');
}
generated quantities { vector[J] z = (c - alpha) / tau; }
