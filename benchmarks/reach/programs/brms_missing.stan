// Two linear regressions, of which the second's predictor is the first's outcome, with missing values.
data {
  int<lower=1> N;
  vector[N] Y_y;
  vector[N] Y_x;
  int<lower=0> Nmi_x;
  array[Nmi_x] int<lower=1> Jmi_x;
  int prior_only;
}
transformed data {
}
parameters {
  real Intercept_y;
  real bsp_y;
  real<lower=0> sigma_y;
  vector[Nmi_x] Ymi_x;
  real Intercept_x;
  real<lower=0> sigma_x;
}
transformed parameters {
  real lprior = 0;
  lprior += student_t_lpdf(Intercept_y | 3, 0, 2.5);
  lprior += normal_lpdf(bsp_y | 0, 2);
  lprior += student_t_lpdf(sigma_y | 3, 0, 2.5) - 1 * student_t_lccdf(0 | 3, 0, 2.5);
  lprior += student_t_lpdf(Intercept_x | 3, 0, 2.5);
  lprior += student_t_lpdf(sigma_x | 3, 0, 2.5) - 1 * student_t_lccdf(0 | 3, 0, 2.5);
}
model {
  if (!prior_only) {
    vector[N] Yl_x = Y_x;
    vector[N] mu_y = rep_vector(0.0, N);
    vector[N] mu_x = rep_vector(0.0, N);
    Yl_x[Jmi_x] = Ymi_x;
    mu_y += Intercept_y;
    mu_x += Intercept_x;
    for (n in 1:N) {
      mu_y[n] += bsp_y * Yl_x[n];
    }
    target += normal_lpdf(Y_y | mu_y, sigma_y);
    target += normal_lpdf(Yl_x | mu_x, sigma_x);
  }
  target += lprior;
}
generated quantities {
  real b_y_Intercept = Intercept_y;
  real b_x_Intercept = Intercept_x;
}
