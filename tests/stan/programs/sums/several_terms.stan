// Truncated, weighted and several outcomes for each observation, in columns.
data {
  int<lower=0> N;
  int<lower=1> K;
  matrix[K, N] x;
  vector<lower=0>[N] y;
  array[2, N] int<lower=0> count;
  vector<lower=0>[N] weight;
  array[N] int<lower=1, upper=N> partner;
}
parameters {
  row_vector[K] b;
  array[2] real a;
  vector[2] d;
  real<lower=0> s;
}
model {
  vector[N] m = (b * x)' .* weight;
  m += 0.1 * y[partner];
  b ~ normal(0, 1);
  s ~ exponential(1);
  d ~ normal(0, 1);
  y ~ normal(m, s) T[0, ];
  for (k in 1 : 2) {
    real shift = a[k] * 2;
    a[k] ~ normal(0, 1);
    count[k] ~ poisson_log(shift + m);
  }
  target += dot_product(weight, log_inv_logit(m)) - sum(log1p(square(y - m)));
  target += 2 * normal_lpdf(weight | d[1], s) + normal_lpdf(d[2] | 1, 1);
}
