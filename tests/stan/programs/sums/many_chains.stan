// A hidden Markov model for each subject: a sum over subjects.
data {
  int<lower=1> S;
  int T;
  array[S, T] real y;
}
parameters {
  array[2] simplex[2] theta;
  ordered[2] mu;
}
model {
  for (s in 1 : S) {
    vector[2] lp = rep_vector(0.5, 2);
    for (t in 1 : T) {
      vector[2] new;
      for (k in 1 : 2) {
        new[k] = log_sum_exp(lp + log(theta[k]))
                 + normal_lpdf(y[s, t] | mu[k], 1);
      }
      lp = new;
    }
    target += log_sum_exp(lp);
  }
}

