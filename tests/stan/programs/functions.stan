// Functions of each kind that Stan's library has a header for.
functions {
  real partial(array[] real slice, int start, int end, real mu, real sigma) {
    return normal_lpdf(slice | mu, sigma) + student_t_lccdf(slice[1] | 4, mu, sigma);
  }
}
data {
  int<lower=1> N;
  int<lower=1> K;
  array[K] real slices;
  array[N] real y;
  array[N] int n;
  matrix[N, 2] x;
}
parameters {
  real mu;
  real<lower=0> sigma;
  simplex[3] p;
  ordered[2] c;
  cov_matrix[2] S;
  cholesky_factor_corr[2] L;
  unit_vector[2] u;
}
model {
  target += reduce_sum(partial, slices, 1, mu, sigma);
  target += owens_t(mu, sigma) + Phi(mu) + inv_Phi(inv_logit(mu)) + log_inv_logit_diff(sigma + 1, 0.5);
  target += lmgamma(2, sigma + 2) + lbeta(sigma, 2) + inc_beta(2, sigma, 0.4) + gamma_p(sigma, 2);
  target += log_sum_exp(c) + log_mix(p[1], mu, sigma) + log_determinant(S);
  n ~ neg_binomial_2_log(mu, sigma);
  n ~ poisson_log_glm(x, mu, [sigma, mu]');
  y ~ skew_normal(mu, sigma, 1);
  y ~ von_mises(mu, sigma);
  to_vector(y) ~ multi_normal_cholesky(rep_vector(mu, N), diag_matrix(rep_vector(sigma, N)));
  c ~ multi_student_t(4, [0, 0]', S);
  S ~ inv_wishart(4, diag_matrix([1, 1]'));
  L ~ lkj_corr_cholesky(2);
  p ~ dirichlet([1, 2, 3]');
  target += normal_lcdf(y | mu, sigma) + beta_lcdf(0.3 | sigma, 2) + weibull_lccdf(0.3 | sigma, 2) + poisson_lcdf(n | sigma);
  target += ordered_logistic_lpmf(2 | mu, c) + categorical_logit_lpmf(1 | c) + multinomial_lpmf({1, 2, 3} | p);
  target += sum(cumulative_sum(softmax(c))) + variance(c) + dot_self(u);
}
generated quantities {
  array[N] real y_rep = normal_rng(rep_vector(mu, N), sigma);
  int z = poisson_rng(sigma) + categorical_rng(p);
  vector[2] w = multi_normal_rng([0, 0]', S);
}
