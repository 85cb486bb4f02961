// Categories by a vector of predictors, the first of them fixed.
data {
  int<lower=0> N;
  int<lower=1> K;
  int<lower=2> C;
  array[N] int<lower=1, upper=C> y;
  matrix[N, K] x;
}
parameters {
  vector[C - 1] a;
  matrix[K, C - 1] b;
}
model {
  a ~ normal(0, 2);
  to_vector(b) ~ normal(0, 2);
  for (n in 1 : N) {
    vector[C] eta = append_row(0, a + (x[n] * b)');
    y[n] ~ categorical_logit(eta);
  }
}
