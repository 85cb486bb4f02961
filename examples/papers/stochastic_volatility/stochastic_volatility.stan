// Stochastic volatility of several short series, all states among the parameters (non-centred).
data {
  int<lower=1> S; // series
  int<lower=1> T; // times
  matrix[S, T] x;
}
parameters {
  real<lower=0, upper=1> phi;
  real<lower=0> sigma2;
  matrix[S, T] z;
}
transformed parameters {
  real sigma = sqrt(sigma2);
}
model {
  matrix[S, T] h;
  h[, 1] = sigma * z[, 1];
  for (t in 2 : T) {
    h[, t] = phi * h[, t - 1] + sigma * z[, t];
  }
  phi ~ beta(5, 1);
  sigma2 ~ inv_gamma(5, 0.05);
  to_vector(z) ~ std_normal();
  to_vector(x) ~ normal(0, to_vector(exp(h / 2)));
}
