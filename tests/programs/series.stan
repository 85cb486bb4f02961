// Many ways to write likelihoods of series that are sums given the data.
data {
  int<lower=1> N;
  int<lower=0> K;
  int<lower=1> D;
  int<lower=1> J;
  vector[N] y;
  array[N] real z;
  array[N] int<lower=0> c;
  matrix[N, K] x;
  array[N] vector[D] v;
  matrix[J, N] panel;
  array[J] int<lower=1, upper=N> n_seen;
}
transformed data {
  vector[N] centred = y - mean(y);
  vector[N - 1] before = centred[1 : N - 1];
}
parameters {
  real alpha;
  real rho;
  vector[K] beta;
  vector[J] level;
  matrix[D, D] A;
  vector<lower=0>[D] scale;
  real<lower=0> sigma;
}
transformed parameters {
  array[N] real<lower=0> spread;
  vector[N] mean_z;
  spread[1] = sigma;
  for (t in 2 : N) {
    spread[t] = sqrt(square(sigma) + 0.5 * square(y[t - 1]));
  }
  mean_z = rep_vector(alpha, N) + x * beta;
}
model {
  vector[N] mu;
  vector[N] eta;
  vector[N - 1] drift = rho * y[1 : N - 1];
  real total = 0;
  alpha ~ normal(0, 2);
  // an autoregression, in a loop and by slices
  y[1] ~ normal(alpha, 2);
  for (t in 2:N) y[t] ~ normal(alpha + rho * y[t-1], sigma);
  y[2 : N] ~ normal(alpha + drift, sigma);
  tail(y, N - 1) ~ student_t(4, head(y, N - 1) * rho, sigma);
  target += normal_lpdf(segment(centred, 2, N - 1) | rho * before, sigma);
  // of K lags, with covariates and a trend
  for (t in (K + 1) : N) {
    real m = alpha + x[t] * beta + 0.01 * t;
    for (k in 1 : K) {
      m += beta[k] * z[t - k];
    }
    z[t] ~ normal(m, sigma);
  }
  for (t in 1 : N) {
    real m = 0;
    for (k in 1 : min(t - 1, K)) m += beta[k] * y[t - k];
    if (t > 1) {
      target += normal_lupdf(y[t] | m + rho * y[t - 1], sigma);
    } else y[t] ~ normal(m, 2 * sigma);
  }
  for (t in (K + 1) : N) {
    y[t] ~ normal(dot_product(beta, reverse(y[(t - K) : (t - 1)])), sigma);
  }
  // counts, differences, several series, units
  for (t in 2 : N) c[t] ~ poisson_log(alpha + rho * log1p(c[t - 1]));
  for (t in 3 : N) {
    z[t] - z[t - 1] ~ normal(rho * (z[t - 1] - z[t - 2]), sigma);
  }
  for (t in 2 : N) {
    vector[D] m = A * v[t - 1];
    for (d in 1 : D) v[t, d] ~ normal(m[d], scale[d]);
  }
  v[2 : N] ~ multi_normal_cholesky(v[1 : N - 1], diag_matrix(scale));
  for (j in 1 : J) {
    real start = level[j] + alpha;
    panel[j, 1] ~ normal(start, 2);
    for (t in 2 : n_seen[j]) {
      panel[j, t] ~ normal(start + rho * (panel[j, t - 1] - start), sigma);
    }
  }
  // means that are computed for all observations first
  mu[1] = alpha;
  for (t in 2 : N) mu[t] = alpha + rho * y[t - 1];
  y ~ normal(mu, spread);
  for (t in 1 : N) {
    eta[t] = alpha;
    if (t > 1) {
      eta[t] += rho * y[t - 1];
    }
    y[t] ~ normal(eta[t], sigma);
  }
  z[2 : N] ~ normal(mean_z[2 : N] + rho * (to_vector(z[1 : N - 1]) - mean_z[1 : N - 1]), sigma);
  for (t in 2 : N) {
    z[t] ~ normal(mean_z[t] + rho * (z[t - 1] - mean_z[t - 1]), sigma);
  }
  for (t in 2 : N) total += normal_lpdf(y[t] | rho * y[t - 1], sigma);
  target += total;
}
generated quantities {
  real last = mean_z[N] + y[N];
}
