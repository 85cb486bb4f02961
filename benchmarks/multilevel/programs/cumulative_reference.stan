// The posterior of cumulative.stan in distances from the first cutpoint: of the others, and of the groups,
// w = u - cut[1]. NUTS mixes well in them.
data {
  int<lower=1> N; int<lower=2> C; int<lower=1> K; int<lower=1> J;
  array[N] int<lower=1, upper=C> y;
  matrix[N, K] x;
  array[N] int<lower=1, upper=J> g;
}
parameters { real first; positive_ordered[C - 2] later; vector[K] beta; real<lower=0> tau; vector[J] w; }
transformed parameters { vector[C - 1] cut = first + append_row(0, later); }
model {
  cut ~ normal(0, 3); beta ~ normal(0, 1); tau ~ normal(0, 1);
  w ~ normal(-first, tau);
  y ~ ordered_logistic(x * beta + w[g], append_row(0, later));
}
generated quantities { vector[J] z = (w + first) / tau; }
