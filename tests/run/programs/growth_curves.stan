data {
  int N; int J; array[N] int<lower=1, upper=J> id; vector[N] t; vector[N] y;
}
parameters {
  vector[3] mu; vector<lower=0>[3] tau; cholesky_factor_corr[3] L; matrix[3, J] z; real<lower=0> sigma;
}
transformed parameters {
  matrix[J, 3] eta = (diag_pre_multiply(tau, L) * z)';
  vector[J] limit = exp(mu[1] + eta[, 1]);
  vector[J] rate = exp(mu[2] + eta[, 2]);
  vector[J] midpoint = mu[3] + eta[, 3];
}
model {
  mu ~ normal([2, 0, 5]', 1);
  tau ~ normal(0, 1);
  L ~ lkj_corr_cholesky(2);
  to_vector(z) ~ std_normal();
  sigma ~ normal(0, 1);
  for (n in 1:N)
    y[n] ~ normal(limit[id[n]] / (1 + exp(-rate[id[n]] * (t[n] - midpoint[id[n]]))), sigma);
}
