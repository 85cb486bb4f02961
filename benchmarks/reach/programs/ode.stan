// Measurements along one trajectory of logistic growth.
functions {
  vector growth(real t, vector z, real r, real capacity) {
    return r * z .* (1 - z / capacity);
  }
}
data {
  int<lower=1> N;
  array[N] real ts;
  vector<lower=0>[N] y;
}
parameters {
  real<lower=0> r;
  real<lower=0> capacity;
  real<lower=0> z0;
  real<lower=0> sigma;
}
model {
  array[N] vector[1] z = ode_rk45(growth, [z0]', 0, ts, r, capacity);
  r ~ lognormal(0, 1);
  capacity ~ lognormal(2, 1);
  z0 ~ lognormal(0, 1);
  sigma ~ exponential(1);
  for (n in 1:N) {
    y[n] ~ lognormal(log(z[n, 1]), sigma);
  }
}
