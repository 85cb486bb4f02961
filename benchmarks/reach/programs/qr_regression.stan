// Linear regression on the thin QR decomposition of its predictors.
data {
  int<lower=1> N;
  int<lower=1> K;
  matrix[N, K] x;
  vector[N] y;
}
transformed data {
  matrix[N, K] Q = qr_thin_Q(x) * sqrt(N - 1);
  matrix[K, K] R = qr_thin_R(x) / sqrt(N - 1);
  matrix[K, K] R_inverse = inverse(R);
}
parameters {
  real alpha;
  vector[K] theta;
  real<lower=0> sigma;
}
model {
  alpha ~ normal(0, 5);
  theta ~ normal(0, 5);
  sigma ~ exponential(1);
  y ~ normal(Q * theta + alpha, sigma);
}
generated quantities {
  vector[K] beta = R_inverse * theta;
}
