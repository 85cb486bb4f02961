// Logistic regression with the Cauchy priors of Gelman et al. (2008), for inputs with mean 0 and sd 0.5.
functions {
  real partial_sum_lpmf(array[] int slice, int start, int end, matrix x, real alpha, vector beta) {
    return bernoulli_logit_glm_lupmf(slice | x[start : end], alpha, beta);
  }
  // The log likelihood of observation i is Lipschitz in (alpha, beta) with the norm of its covariates, intercept
  // included (Bardenet et al. 2014, below equation 23).
  real log_lik_lipschitz_i(int i, matrix x) {
    return sqrt(1 + dot_self(x[i]));
  }
}
data {
  int<lower=0> N;
  int<lower=1> K;
  array[N] int<lower=0, upper=1> y;
  matrix[N, K] x;
}
parameters {
  real alpha;
  vector[K] beta;
}
model {
  alpha ~ cauchy(0, 10);
  beta ~ cauchy(0, 2.5);
  target += reduce_sum(partial_sum_lupmf, y, 1, x, alpha, beta);
}
