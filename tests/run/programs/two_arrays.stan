// Effects of groups that are measured by two instruments, with a row for each measurement by either.
data {
  int<lower=1> J;
  int<lower=0> N_fine;
  int<lower=0> N_coarse;
  vector[N_fine] y_fine;
  vector[N_coarse] y_coarse;
  array[N_fine] int<lower=1, upper=J> group_fine;
  array[N_coarse] int<lower=1, upper=J> group_coarse;
}
parameters {
  real mu;
  real<lower=0> tau;
  vector[J] z;
}
transformed parameters {
  vector[J] u = tau * z;
}
model {
  mu ~ normal(0, 2);
  tau ~ normal(0, 1);
  z ~ std_normal();
  y_fine ~ normal(mu + u[group_fine], 1);
  y_coarse ~ normal(mu + u[group_coarse], 3);
}
