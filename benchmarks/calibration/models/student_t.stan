// Linear regression with errors of Student's t.
data {
  int<lower=0> N;
  vector[N] x;
  vector[N] y;
}
parameters {
  real alpha;
  real beta;
  real<lower=0> sigma;
  real<lower=1> nu;
}
model {
  alpha ~ normal(0, 1);
  beta ~ normal(0, 1);
  sigma ~ lognormal(0, 0.4);
  nu ~ lognormal(1.5, 0.4);
  y ~ student_t(nu, alpha + beta * x, sigma);
}
