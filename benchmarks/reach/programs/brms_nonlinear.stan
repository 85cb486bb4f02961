// Non-linear regression, an exponential decay.
data {
  int<lower=1> N;
  vector[N] Y;
  int<lower=1> K_a;
  matrix[N, K_a] X_a;
  int<lower=1> K_k;
  matrix[N, K_k] X_k;
  vector[N] C_1;
  int prior_only;
}
transformed data {
}
parameters {
  vector[K_a] b_a;
  vector[K_k] b_k;
  real<lower=0> sigma;
}
transformed parameters {
  real lprior = 0;
  lprior += normal_lpdf(b_a | 0, 5);
  lprior += normal_lpdf(b_k | 0, 1);
  lprior += student_t_lpdf(sigma | 3, 0, 2.5) - 1 * student_t_lccdf(0 | 3, 0, 2.5);
}
model {
  if (!prior_only) {
    vector[N] nlp_a = rep_vector(0.0, N);
    vector[N] nlp_k = rep_vector(0.0, N);
    vector[N] mu;
    nlp_a += X_a * b_a;
    nlp_k += X_k * b_k;
    for (n in 1:N) {
      mu[n] = (nlp_a[n] * exp(-exp(nlp_k[n]) * C_1[n]));
    }
    target += normal_lpdf(Y | mu, sigma);
  }
  target += lprior;
}
