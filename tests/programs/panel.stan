// A dynamic panel: the first outcome of each unit has a density of its own.
data {
  int<lower=1> I;
  int<lower=2> T;
  matrix[I, T] y;
  matrix[I, T] x;
}
parameters {
  real alpha;
  real<lower=-1, upper=1> rho;
  real beta;
  real<lower=0> sigma;
  real<lower=0> tau;
  real<lower=0> sigma_first;
  vector[I] z;
}
model {
  alpha ~ normal(0, 1);
  rho ~ uniform(-1, 1);
  beta ~ normal(0, 1);
  sigma ~ normal(0, 1);
  tau ~ normal(0, 1);
  sigma_first ~ normal(0, 2);
  z ~ std_normal();
  for (i in 1 : I) {
    y[i, 1] ~ normal((alpha + tau * z[i]) / (1 - rho), sigma_first);
    for (t in 2 : T) {
      y[i, t] ~ normal(alpha + tau * z[i] + rho * y[i, t - 1] + beta * x[i, t], sigma);
    }
  }
}
