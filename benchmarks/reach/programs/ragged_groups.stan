// Groups of different sizes, one after the other in a vector.
data {
  int<lower=1> N;
  int<lower=1> J;
  vector[N] y;
  array[J] int<lower=1> n;
}
parameters {
  vector[J] alpha;
  real mu;
  real<lower=0> tau;
  real<lower=0> sigma;
}
model {
  int pos = 1;
  mu ~ normal(0, 5);
  tau ~ exponential(1);
  sigma ~ exponential(1);
  alpha ~ normal(mu, tau);
  for (j in 1:J) {
    segment(y, pos, n[j]) ~ normal(alpha[j], sigma);
    pos += n[j];
  }
}
