// A finite mixture of K logistic experts with Gaussian inputs: equation 9 cut off at K, assignments summed out.
functions {
  real partial_log_lik(array[] int y, int start, int end, vector x1, vector x2, vector log_pi,
                       array[] vector mu, array[] matrix L, array[] vector w) {
    int n = end - start + 1;
    int K = num_elements(log_pi);
    vector[n] a = x1[start:end];
    vector[n] b = x2[start:end];
    vector[n] sign = 2 * to_vector(y) - 1;
    matrix[K, n] log_density;
    for (k in 1:K) {
      vector[n] u = (a - mu[k, 1]) / L[k, 1, 1];
      vector[n] v = (b - mu[k, 2] - L[k, 2, 1] * u) / L[k, 2, 2];
      vector[n] margin = sign .* (w[k, 1] + w[k, 2] * a + w[k, 3] * b);
      log_density[k] = (log_pi[k] - log(2 * pi()) - log(L[k, 1, 1]) - log(L[k, 2, 2])
                        - 0.5 * (u .* u + v .* v) - log1p_exp(-margin))';
    }
    real total = 0;
    for (i in 1:n) {
      total += log_sum_exp(log_density[, i]);
    }
    return total;
  }
}
data {
  int<lower=1> K;
  int<lower=1> N;
  array[N] int<lower=0, upper=1> y;
  vector[N] x1;
  vector[N] x2;
  real<lower=0> k0;
  real<lower=3> v0;
  real<lower=0> s0;
  real<lower=0> sd_w;
}
parameters {
  simplex[K] pi_;
  array[K] vector[2] mu;
  array[K] cholesky_factor_cov[2] L;
  array[K] vector[3] w;
}
model {
  pi_ ~ dirichlet(rep_vector(1, K));
  for (k in 1:K) {
    L[k] ~ inv_wishart_cholesky(v0, diag_matrix(rep_vector(sqrt(s0), 2)));
    mu[k] ~ multi_normal_cholesky(rep_vector(0, 2), L[k] / sqrt(k0));
    w[k] ~ normal(0, sd_w);
  }
  target += reduce_sum(partial_log_lik, y, 1, x1, x2, log(pi_), mu, L, w);
}
