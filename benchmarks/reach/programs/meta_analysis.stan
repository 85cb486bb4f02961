// Estimates of studies about an effect of each.
data {
  int<lower=1> J;
  vector[J] y;
  vector<lower=0>[J] se;
}
parameters {
  vector[J] theta;
  real mu;
  real<lower=0> tau;
}
model {
  mu ~ normal(0, 5);
  tau ~ normal(0, 2);
  theta ~ normal(mu, tau);
  y ~ normal(theta, se);
}
