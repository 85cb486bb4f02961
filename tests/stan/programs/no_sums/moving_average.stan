// Errors of the last observations in a matrix.
data {
  int N;
  vector[N] Y;
  int Kma;
  array[N] int J_lag;
}
transformed data {
  int max_lag = Kma;
}
parameters {
  real Intercept;
  vector[Kma] ma;
  real<lower=0> sigma;
}
model {
  matrix[N, max_lag] Err = rep_matrix(0, N, max_lag);
  vector[N] err;
  vector[N] mu = rep_vector(0.0, N);
  mu += Intercept;
  for (n in 1 : N) {
    mu[n] += Err[n, 1 : Kma] * ma;
    err[n] = Y[n] - mu[n];
    for (i in 1 : J_lag[n]) {
      Err[n + 1, i] = err[n + 1 - i];
    }
  }
  target += normal_lpdf(Y | mu, sigma);
}

