// Many short sequences, each of a hidden Markov chain with two states.
data {
  int<lower=1> S;
  int<lower=1> T;
  array[S, T] real y;
}
parameters {
  array[2] simplex[2] move;
  ordered[2] mu;
  real<lower=0> sigma;
}
model {
  mu ~ normal(0, 3);
  sigma ~ exponential(1);
  for (s in 1:S) {
    vector[2] forward;
    for (k in 1:2) forward[k] = -log(2) + normal_lpdf(y[s, 1] | mu[k], sigma);
    for (t in 2:T) {
      vector[2] next;
      for (k in 1:2) {
        next[k] = log_sum_exp(forward[1] + log(move[1, k]), forward[2] + log(move[2, k]))
                  + normal_lpdf(y[s, t] | mu[k], sigma);
      }
      forward = next;
    }
    target += log_sum_exp(forward);
  }
}
