// ARMA(1, 1), its last error in a variable.
data {
  int<lower=1> T;
  vector[T] y;
}
parameters {
  real mu;
  real phi;
  real theta;
  real<lower=0> sigma;
}
model {
  real err = y[1] - mu;
  err ~ normal(0, sigma);
  for (t in 2 : T) {
    err = y[t] - (mu + phi * y[t - 1] + theta * err);
    err ~ normal(0, sigma);
  }
}

