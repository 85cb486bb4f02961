// Ratings of films by users as products of their factors.
data {
  int<lower=1> N;
  int<lower=1> U;
  int<lower=1> F;
  int<lower=1> D;
  array[N] int<lower=1, upper=U> user;
  array[N] int<lower=1, upper=F> film;
  vector[N] rating;
}
parameters {
  matrix[U, D] p;
  matrix[F, D] q;
  real mu;
  real<lower=0> sigma;
}
model {
  to_vector(p) ~ std_normal();
  to_vector(q) ~ std_normal();
  sigma ~ exponential(1);
  rating ~ normal(mu + rows_dot_product(p[user], q[film]), sigma);
}
