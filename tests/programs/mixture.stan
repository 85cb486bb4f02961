// A mixture, its component summed out observation by observation; weights on a simplex, means in order.
data {
  int<lower=2> K;
  int<lower=0> N;
  array[N] real y;
}
parameters {
  simplex[K] weight;
  ordered[K] mu;
  vector<lower=0>[K] sigma;
}
model {
  vector[K] log_weight = log(weight);
  mu ~ normal(0, 5);
  sigma ~ lognormal(0, 1);
  for (n in 1 : N) {
    vector[K] terms = log_weight;
    for (k in 1 : K) {
      if (sigma[k] > 1000) {
        reject("sigma is too large");
      }
      terms[k] += normal_lpdf(y[n] | mu[k], sigma[k]);
    }
    target += log_sum_exp(terms);
  }
}
