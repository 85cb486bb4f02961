// An array of parameters is sliced: a unit is a group, and its effects belong to its place.
functions {
  real groups(array[] vector effect, int start, int end, array[,] int y, array[] matrix x) {
    real total = 0;
    for (j in 1 : size(effect)) {
      total += bernoulli_logit_lpmf(y[start + j - 1] | x[start + j - 1] * effect[j]);
    }
    return total;
  }
}
data {
  int<lower=1> J;
  int<lower=1> K;
  int<lower=1> M;
  array[J, M] int<lower=0, upper=1> y;
  array[J] matrix[M, K] x;
}
parameters {
  vector[K] beta;
  array[J] vector[K] effect;
}
model {
  beta ~ std_normal();
  for (j in 1 : J) {
    effect[j] ~ normal(beta, 0.5);
  }
  target += reduce_sum(groups, effect, 1, y, x);
}
