// A state of its own for each observation, non-centred.
data {
  int T;
  vector[T] y;
}
parameters {
  real mu;
  real phi;
  real<lower=0> sigma;
  vector[T] h_std;
}
transformed parameters {
  vector[T] h = h_std * sigma;
  h[1] /= sqrt(1 - phi * phi);
  h += mu;
  for (t in 2 : T) {
    h[t] += phi * (h[t - 1] - mu);
  }
}
model {
  h_std ~ std_normal();
  y ~ normal(0, exp(h / 2));
}

