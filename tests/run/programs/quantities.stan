// A normal sample with values of every kind beside the parameters; above the limit one of them fails.
data {
  int<lower=0> N;
  vector[N] y;
  real limit;
}
parameters {
  real mu;
  real<lower=0> sigma;
}
transformed parameters {
  real precision = inv_square(sigma);
  vector[N] residual = (y - mu) / sigma;
}
model {
  mu ~ normal(0, 10);
  sigma ~ normal(0, 5);
  y ~ normal(mu, sigma);
}
generated quantities {
  vector[N] log_lik;
  array[N] real y_rep;
  matrix[2, 3] table;
  for (n in 1 : N) {
    log_lik[n] = normal_lpdf(y[n] | mu, sigma);
    y_rep[n] = normal_rng(mu, sigma);
  }
  for (i in 1 : 2) {
    for (j in 1 : 3) {
      table[i, j] = normal_rng(10 * i + j, 0.1);
    }
  }
  if (mu > limit) {
    reject("mu is above the limit");
  }
}
