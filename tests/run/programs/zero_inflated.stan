functions {
  real zi_lpmf(int y, real eta, real p) {
    if (y == 0) {
      return log_sum_exp(bernoulli_lpmf(1 | p), bernoulli_lpmf(0 | p) + poisson_log_lpmf(0 | eta));
    }
    return bernoulli_lpmf(0 | p) + poisson_log_lpmf(y | eta);
  }
}
data { int N; int J; array[N] int y; vector[N] x; array[N] int g; }
parameters { real a; real b; real<lower=0, upper=1> p; vector[J] z; real<lower=0> tau; }
transformed parameters { vector[J] u = tau * z; }
model {
  a ~ normal(0, 2);
  b ~ normal(0, 2);
  z ~ normal(0, 1);
  tau ~ normal(0, 1);
  for (n in 1 : N) target += zi_lpmf(y[n] | a + b * x[n] + u[g[n]], p);
}
