// Not a sum over observations: the covariates are centred by the mean of all of them.
data {
  int<lower=0> N;
  int<lower=1> K;
  matrix[N, K] x;
  vector[N] y;
}
transformed data {
  matrix[N, K] centred;
  for (k in 1 : K) {
    centred[ : , k] = x[ : , k] - mean(x[ : , k]);
  }
}
parameters {
  real alpha;
  vector[K] beta;
  real<lower=0> sigma;
}
model {
  alpha ~ normal(0, 5);
  beta ~ normal(0, 5);
  sigma ~ exponential(1);
  y ~ normal_id_glm(centred, alpha, beta, sigma);
}
