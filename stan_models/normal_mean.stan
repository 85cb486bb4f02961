// Mean of a normal sample with known standard deviation: the posterior is normal, in closed form.
functions {
  real log_lik_i(int i, vector y, real mu, real sigma) {
    return normal_lpdf(y[i] | mu, sigma);
  }
  // Bound on |log_lik_i(mu_new) - log_lik_i(mu)| over all observations.
  real log_lik_range(vector y, real sigma, real mu, real mu_new) {
    return abs(mu_new - mu) * max(abs(y - 0.5 * (mu + mu_new))) / square(sigma);
  }
}
data {
  int<lower=0> N;
  vector[N] y;
  real<lower=0> sigma;
}
parameters {
  real mu;
}
model {
  mu ~ normal(0, 10);
  for (i in 1 : N) {
    target += log_lik_i(i, y, mu, sigma);
  }
}
