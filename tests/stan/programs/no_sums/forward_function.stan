// The same in a function, its state carried in a vector.
functions {
  real forward(array[] real y, array[] vector theta, vector mu) {
    int T = size(y);
    vector[2] lp = rep_vector(0.5, 2);
    for (t in 1 : T) {
      vector[2] new;
      for (k in 1 : 2) {
        new[k] = log_sum_exp(lp + log(theta[k]))
                 + normal_lpdf(y[t] | mu[k], 1);
      }
      lp = new;
    }
    return log_sum_exp(lp);
  }
}
data {
  int<lower=1> T;
  array[T] real y;
}
parameters {
  array[2] simplex[2] theta;
  ordered[2] mu;
}
model {
  mu ~ normal(0, 5);
  target += forward(y, theta, mu);
}

