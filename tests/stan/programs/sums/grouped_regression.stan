// A generalised linear model with groups, offsets and predictors centred by their means; its own quantities.
data {
  int<lower=0> N;
  int<lower=1> K;
  int<lower=1> J;
  matrix[N, K] x;
  array[N] int<lower=0> y;
  array[N] int<lower=1, upper=J> group;
  vector[N] exposure;
  array[N] int<lower=1, upper=N> partner;
}
transformed data {
  matrix[N, K] centred;
  for (k in 1 : K) {
    centred[ : , k] = x[ : , k] - mean(x[ : , k]);
  }
}
parameters {
  vector[K] beta;
  vector[J] z;
  real<lower=0> tau;
  real<lower=0> phi;
  real c;
}
transformed parameters {
  vector[J] effect = tau * z;
  vector[N] eta;
  eta = effect[group] + log(exposure);
  for (n in 1 : N) {
    eta[n] += c * x[partner[n], 1];
  }
}
model {
  beta ~ normal(0, 1);
  z ~ std_normal();
  tau ~ normal(0, 1);
  phi ~ exponential(1);
  c ~ normal(0, 1);
  y ~ neg_binomial_2_log_glm(centred, eta, beta, phi);
}
generated quantities {
  real largest = max(eta);
}
