// Effects of times, an autoregression written in its innovations. Data determine the effects well, and so neither the
// innovations nor the autocorrelation alone.
data {
  int<lower=0> N;
  int<lower=1> T;
  vector[N] y;
  array[N] int<lower=1, upper=T> t;
  real<lower=0> typical;
}
transformed data {
  real log_typical = log(typical);
}
parameters {
  real mu;
  real<lower=-1, upper=1> rho;
  real<lower=0> s;
  vector[T] e;
  real<lower=0> sigma;
}
transformed parameters {
  vector[T] f;
  f[1] = s / sqrt(1 - square(rho)) * e[1];
  for (k in 2 : T)
    f[k] = rho * f[k - 1] + s * e[k];
}
model {
  mu ~ normal(log_typical, 5);
  s ~ normal(0, 1);
  e ~ std_normal();
  sigma ~ exponential(1);
  y ~ normal(mu + f[t], sigma);
}
