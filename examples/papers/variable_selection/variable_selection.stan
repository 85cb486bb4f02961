// Bayesian lasso for logistic regression, features in and out of the model: a coefficient that is 0 is out. Paper 003's
// equation 9: the scale of the Laplace priors is integrated out, so that the L1 norm is all that is left of them.
data {
  int<lower=0> N;
  int<lower=1> D;
  matrix[N, D] x;
  array[N] int<lower=0, upper=1> y;
  real<lower=0> lambda;
  real<lower=0> nu;  // above 0: all features in the model, with Laplace priors of this scale, rounded at the tip
}
parameters {
  vector[D] beta;
}
model {
  if (nu > 0) {
    target += -sum(sqrt(square(beta) + square(0.01))) / nu;
  } else {
    int k = 0;
    for (d in 1:D) {
      k += beta[d] != 0;
    }
    if (k == 0) {
      reject("the empty model has no posterior");
    }
    target += k * log(lambda) - k * log(sum(abs(beta))) + lbeta(k, D - k + 1);
  }
  y ~ bernoulli_logit_glm(x, 0, beta);
}
