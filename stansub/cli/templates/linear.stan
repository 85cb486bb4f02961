data {
  int<lower=0> N;
  int<lower=1> K;
  vector[N] y;
  matrix[N, K] x;
}
parameters {
  real alpha;
  vector[K] beta;
  real<lower=0> sigma;
}
model {
  alpha ~ normal(0, 2.5);
  beta ~ normal(0, 2.5);
  sigma ~ exponential(1);
  y ~ normal_id_glm(x, alpha, beta, sigma);
}
