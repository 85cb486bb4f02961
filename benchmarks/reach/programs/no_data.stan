// A density to be sampled, without data.
data {
  int<lower=1> N;
}
parameters {
  vector[N] z;
  real<lower=0> tau;
}
model {
  tau ~ cauchy(0, 1);
  z ~ normal(0, tau);
}
