// Mixtures by log_sum_exp and by log_mix, in two loops with variables of their own.
data {
  int<lower=0> N;
  vector[N] y;
  array[N] int<lower=1, upper=N> partner;
}
parameters {
  ordered[2] mu;
  array[2] real<lower=0> s;
  real<lower=0, upper=1> w;
}
model {
  s ~ lognormal(0, 1);
  mu ~ normal(0, 2);
  for (n in 1 : N) {
    vector[2] lp;
    real last = y[partner[n]];
    lp[1] = log(w) + normal_lpdf(y[n] | mu[1] + last, s[1]);
    lp[2] = log1m(w) + normal_lupdf(y[n] | mu[2], s[2]);
    target += log_sum_exp(lp);
  }
  for (i in 1 : size(y)) {
    if (y[i] > 0) {
      target += log_mix(w, normal_lpdf(y[i] | mu[1], 1), normal_lpdf(y[i] | mu[2], 2));
    } else {
      y[i] ~ normal(mu[1], 3);
    }
  }
}
