// Ordered logistic regression with four categories.
data {
  int<lower=0> N;
  vector[N] x;
  array[N] int<lower=1, upper=4> y;
}
parameters {
  real beta;
  ordered[3] cut;
}
model {
  beta ~ normal(0, 1);
  cut ~ normal([-1.5, 0, 1.5]', 0.5);
  y ~ ordered_logistic(x * beta, cut);
}
