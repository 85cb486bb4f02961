// reduce_sum over increments: the slice reaches back to the observation before its first.
functions {
  real increments_lpdf(array[] real y, int start, int end, data array[] real all, real sigma) {
    real total = 0;
    for (t in start : end) {
      total += normal_lpdf(all[t] | t > 1 ? all[t - 1] : 0, sigma);
    }
    return total;
  }
}
data {
  int<lower=1> N;
  array[N] real y;
}
parameters {
  real<lower=0> sigma;
}
model {
  sigma ~ normal(0, 1);
  target += reduce_sum(increments_lpdf, y, 1, y, sigma);
}
