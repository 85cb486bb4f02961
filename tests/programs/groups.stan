// Observations in columns, groups with covariates of their own, offsets known only by what is computed from them.
data {
  int<lower=1> J;
  int<lower=1> K;
  int<lower=1> T;
  int<lower=0> N;
  vector[J] u;
  matrix[K, N] x;
  array[T, N] int<lower=0> count;
  array[N] int<lower=1, upper=J> group;
  vector<lower=0>[N] exposure;
}
transformed data {
  matrix[N, K] rows = x';
  vector[N] log_exposure = log(exposure);
}
parameters {
  vector[K] beta;
  vector<offset=0.5, multiplier=2>[T] alpha;
  real gamma;
  vector[J] z;
  real<lower=0> tau;
}
transformed parameters {
  vector[J] effect = gamma * u + tau * z;
}
model {
  vector[N] eta = rows * beta + effect[group] + log_exposure;
  beta ~ std_normal();
  alpha ~ std_normal();
  gamma ~ std_normal();
  z ~ std_normal();
  tau ~ exponential(1);
  for (t in 1 : T) {
    count[t] ~ poisson_log(alpha[t] + eta);
  }
}
