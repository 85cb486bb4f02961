// Gaussian process regression by the spectra of its correlation matrix, zeta summed out.
functions {
  vector log_lik(array[] vector lambda, array[] vector squares, real sigma2, real tau2) {
    vector[size(lambda)] found;
    for (d in 1 : size(lambda)) {
      vector[num_elements(lambda[d])] variances = tau2 * lambda[d] + sigma2;
      found[d] = -0.5 * sum(log(variances) + squares[d] ./ variances);
    }
    return found;
  }
}
data {
  int<lower=1> D; // values of zeta
  int<lower=1> N;
  vector[D] zetas;
  array[D] vector<lower=0>[N] lambda; // eigenvalues
  array[D] vector<lower=0>[N] squares; // of the components of z
  real<lower=0> a;
  real<lower=0> b;
}
parameters {
  real log_sigma2;
  real log_tau2;
}
model {
  // Gamma(a, b) of the precisions, with the Jacobians of their logarithms.
  target += -a * (log_sigma2 + log_tau2) - b * (exp(-log_sigma2) + exp(-log_tau2));
  target += log_sum_exp(log_lik(lambda, squares, exp(log_sigma2), exp(log_tau2)));
}
generated quantities {
  real zeta = zetas[categorical_logit_rng(log_lik(lambda, squares, exp(log_sigma2), exp(log_tau2)))];
}
