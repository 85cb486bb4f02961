// Observations of one trajectory of an oscillator.
functions {
  vector sho(real t, vector z, real th) {
    return [z[2], -z[1] - th * z[2]]';
  }
}
data {
  int<lower=1> T;
  array[T, 2] real y;
  real t0;
  array[T] real ts;
}
parameters {
  vector[2] y0;
  real<lower=0> sigma;
  real th;
}
transformed parameters {
  array[T] vector[2] z = ode_rk45(sho, y0, t0, ts, th);
}
model {
  for (t in 1 : T) {
    y[t] ~ normal(z[t], sigma);
  }
}

