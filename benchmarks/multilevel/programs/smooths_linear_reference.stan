// The posterior of smooths_linear.stan from sufficient statistics: with [1 Xc Xs Zs] = Q R, the rows R w and Q'y, and the
// sum of the squares of the rest of Y.
data {
  int<lower=1> N; int<lower=1> P; vector[P] qy; matrix[P, P] r; real<lower=0> rest;
  int<lower=1> Kc; int<lower=1> Ks; int<lower=1> knots_1; int<lower=1> knots_2; int<lower=1> knots_3;
}
parameters {
  vector[Kc] b; real Intercept; vector[Ks] bs; real<lower=0> sigma;
  vector[knots_1] zs_1_1; vector<lower=0>[1] sds_1;
  vector[knots_2] zs_2_1; vector<lower=0>[1] sds_2;
  vector[knots_3] zs_3_1; vector<lower=0>[1] sds_3;
}
model {
  vector[P] w;
  w[1] = Intercept; w[2:(Kc + 1)] = b; w[(Kc + 2):(Kc + Ks + 1)] = bs;
  w[(Kc + Ks + 2):P] = append_row(sds_1[1] * zs_1_1, append_row(sds_2[1] * zs_2_1, sds_3[1] * zs_3_1));
  qy ~ normal(r * w, sigma);
  target += -(N - P) * log(sigma) - rest / (2 * square(sigma));
  b ~ normal(0, 2); bs ~ normal(0, 3); Intercept ~ student_t(3, 0, 2.5); sigma ~ student_t(3, 0, 2.5);
  sds_1 ~ student_t(3, 0, 2.5); sds_2 ~ student_t(3, 0, 2.5); sds_3 ~ student_t(3, 0, 2.5);
  zs_1_1 ~ std_normal(); zs_2_1 ~ std_normal(); zs_3_1 ~ std_normal();
}
