data { int N; int J; vector[N] x; array[N] int<lower=0, upper=1> y; array[N] int<lower=1, upper=J> g; }
parameters { real a; real b; vector[J] z; real<lower=0> tau; real<lower=0.5, upper=1> se; real<lower=0.5, upper=1> sp; }
model {
  a ~ normal(0, 1.5); b ~ std_normal(); z ~ std_normal(); tau ~ std_normal(); se ~ beta(8, 2); sp ~ beta(8, 2);
  for (n in 1:N) {
    real p = inv_logit(a + b * x[n] + tau * z[g[n]]);
    target += bernoulli_lpmf(y[n] | se * p + (1 - sp) * (1 - p));
  }
}
