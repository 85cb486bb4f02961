// Counts of regions with an effect of each that is like its neighbours'.
data {
  int<lower=1> N;
  int<lower=1> N_edges;
  array[N_edges] int<lower=1, upper=N> node1;
  array[N_edges] int<lower=1, upper=N> node2;
  array[N] int<lower=0> y;
  vector<lower=0>[N] E;
}
parameters {
  real alpha;
  real<lower=0> sigma;
  vector[N] phi;
}
model {
  alpha ~ normal(0, 2);
  sigma ~ normal(0, 1);
  target += -0.5 * dot_self(phi[node1] - phi[node2]);
  sum(phi) ~ normal(0, 0.001 * N);
  y ~ poisson_log(log(E) + alpha + sigma * phi);
}
