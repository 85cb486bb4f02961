// The spread follows the mean; one vector of covariates an observation; at least one observation is asked for.
functions {
#include parts/scale.stanfunctions
}
data {
  int<lower=1> N;
  int<lower=1> K;
  array[N] vector[K] x;
  vector[N] y;
}
transformed data {
  int P = K + 1;
  vector[P] prior_scale = rep_vector(2.5, P);
  profile("transformed data") {
    print("observations: ", N);
  }
}
parameters {
  vector[P] beta;
  real a;
  real<lower=-1, upper=1> b;
}
model {
  beta ~ normal(0, prior_scale);
  a ~ std_normal();
  profile("likelihood") {
    for (n in 1 : N) {
      real mu = beta[1] + dot_product(x[n], tail(beta, K));
      print("mean ", mu);
      y[n] ~ normal(mu, scale_at(mu, a, b));
    }
  }
}
