// Mixture of two normal distributions.
data {
  int<lower=1> N;
  vector[N] Y;
  vector[2] con_theta;
  int prior_only;
}
transformed data {
}
parameters {
  simplex[2] theta;
  real<lower=0> sigma1;
  real<lower=0> sigma2;
  ordered[2] ordered_Intercept;
}
transformed parameters {
  real Intercept_mu1 = ordered_Intercept[1];
  real Intercept_mu2 = ordered_Intercept[2];
  real<lower=0, upper=1> theta1;
  real<lower=0, upper=1> theta2;
  real lprior = 0;
  theta1 = theta[1];
  theta2 = theta[2];
  lprior += student_t_lpdf(Intercept_mu1 | 3, 0, 2.5);
  lprior += student_t_lpdf(Intercept_mu2 | 3, 0, 2.5);
  lprior += student_t_lpdf(sigma1 | 3, 0, 2.5) - 1 * student_t_lccdf(0 | 3, 0, 2.5);
  lprior += student_t_lpdf(sigma2 | 3, 0, 2.5) - 1 * student_t_lccdf(0 | 3, 0, 2.5);
  lprior += dirichlet_lpdf(theta | con_theta);
}
model {
  if (!prior_only) {
    vector[N] mu1 = rep_vector(0.0, N);
    vector[N] mu2 = rep_vector(0.0, N);
    mu1 += Intercept_mu1;
    mu2 += Intercept_mu2;
    for (n in 1:N) {
      array[2] real ps;
      ps[1] = log(theta1) + normal_lpdf(Y[n] | mu1[n], sigma1);
      ps[2] = log(theta2) + normal_lpdf(Y[n] | mu2[n], sigma2);
      target += log_sum_exp(ps);
    }
  }
  target += lprior;
}
generated quantities {
  real b_mu1_Intercept = Intercept_mu1;
  real b_mu2_Intercept = Intercept_mu2;
}
