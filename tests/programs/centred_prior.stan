// What looks like a prior reads all observations, by way of a function and a variable.
functions {
  real middle(vector x) {
    return mean(x);
  }
}
data {
  int<lower=1> N;
  vector[N] y;
}
transformed data {
  vector[N] scaled = y / 2;
}
parameters {
  real mu;
  real<lower=0> sigma;
}
transformed parameters {
  real typical = middle(scaled);
}
model {
  mu ~ normal(typical, 1);
  sigma ~ exponential(1);
  scaled ~ normal(mu, sigma);
}
