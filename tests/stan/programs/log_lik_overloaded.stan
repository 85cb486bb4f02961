#include parts/likelihood.stanfunctions
data {
  int<lower=0> N;
  int<lower=0> first;
  array[N] real y;
  int prior_only;
}
parameters {
  real mu;
  real<lower=0> sigma;
  ordered[2] cut;
  real<lower=mu> above;
}
model {
  real scale = sigma;
  vector[2] shift = [cut[1], 0]';
  scale *= 2;
  mu ~ normal(0, 1);
  if (prior_only) {
    print("prior only");
  } else {
    profile("likelihood") {
      real loc = mu + shift[1];
      for (n in (first + 1) : (N - 1)) {
        target += log_lik_i(n, y, loc, scale);
      }
    }
  }
  cut ~ normal(0, 1);
}
generated quantities {
  real y_rep = normal_rng(mu, sigma);
}
