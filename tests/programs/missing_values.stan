// A regression with missing values in the outcome and in three predictors.
data {
  int<lower=1> N;
  int<lower=0> N_seen;
  int<lower=0> N_gone;
  array[N_seen] int<lower=1, upper=N> seen;
  array[N_gone] int<lower=1, upper=N> gone;
  vector[N_seen] y_seen;
  vector[N] x;
  int<lower=0> M;
  array[M] int<lower=1, upper=N> no_x;
  matrix[N, 2] z;
  int<lower=0> L;
  array[L] int<lower=1, upper=N> no_z;
  array[L] int<lower=1, upper=2> which_z;
}
parameters {
  real alpha;
  vector[3] beta;
  real<lower=0> sigma;
  real centre;
  real<lower=0> spread;
  array[N_gone] real y_gone;
  vector[M] log_x;
  vector<lower=-9, upper=9>[L] z_gone;
}
transformed parameters {
  vector[N] y;
  y[seen] = y_seen;
  for (k in 1:N_gone) y[gone[k]] = y_gone[k];
}
model {
  vector[N] x_all = x;
  matrix[N, 2] z_all = z;
  for (k in 1:L) z_all[no_z[k], which_z[k]] = z_gone[k];
  x_all[no_x] = exp(log_x);
  alpha ~ normal(0, 2);
  beta ~ normal(0, 2);
  sigma ~ exponential(1);
  spread ~ exponential(1);
  target += sum(log_x);
  x_all ~ normal(centre, spread);
  to_vector(z_all) ~ std_normal();
  y ~ normal(alpha + beta[1] * x_all + z_all * beta[2:3], sigma);
}
generated quantities {
  real first = y[1] + sum(log_x);
}
