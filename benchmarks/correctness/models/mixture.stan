// A mixture of normal components, or of t components where degrees of freedom are given; means in order or not.
data {
  int<lower=2> K;
  int<lower=0> N;
  array[N] real y;
  real<lower=0> nu; // of the t distribution; 0 for normal components
  int<lower=0, upper=1> in_order;
}
parameters {
  simplex[K] weight;
  ordered[in_order ? K : 0] mu_in_order;
  vector[in_order ? 0 : K] mu_free;
  vector<lower=0>[K] sigma;
}
transformed parameters {
  vector[K] mu = in_order ? mu_in_order : mu_free;
}
model {
  vector[K] log_weight = log(weight);
  mu ~ normal(0, 5);
  sigma ~ lognormal(0, 1);
  for (n in 1 : N) {
    vector[K] terms = log_weight;
    for (k in 1 : K) {
      if (nu > 0) {
        terms[k] += student_t_lpdf(y[n] | nu, mu[k], sigma[k]);
      } else {
        terms[k] += normal_lpdf(y[n] | mu[k], sigma[k]);
      }
    }
    target += log_sum_exp(terms);
  }
}
