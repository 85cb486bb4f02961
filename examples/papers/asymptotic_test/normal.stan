// Mean and standard deviation of a normal model with flat priors on both.
functions {
  real log_lik_i(int i, vector y, real mu, real sigma) {
    return normal_lpdf(y[i] | mu, sigma);
  }
  // Difference of the log likelihoods of one observation, a quadratic in it.
  real log_ratio(real value, real mu, real sigma, real mu_new, real sigma_new) {
    return normal_lpdf(value | mu_new, sigma_new) - normal_lpdf(value | mu, sigma);
  }
  // Largest |log_lik_i(new) - log_lik_i| over all observations: a quadratic has its extremes at the ends, or at the
  // vertex if that lies between them.
  real log_lik_range(real low, real high, real mu, real sigma, real mu_new, real sigma_new) {
    real precision = inv_square(sigma);
    real precision_new = inv_square(sigma_new);
    real largest = fmax(abs(log_ratio(low, mu, sigma, mu_new, sigma_new)),
                        abs(log_ratio(high, mu, sigma, mu_new, sigma_new)));
    real vertex = (precision_new * mu_new - precision * mu) / (precision_new - precision);
    if (vertex > low && vertex < high) {
      largest = fmax(largest, abs(log_ratio(vertex, mu, sigma, mu_new, sigma_new)));
    }
    return largest;
  }
}
data {
  int<lower=0> N;
  vector[N] y;
}
transformed data {
  real low = min(y);
  real high = max(y);
}
parameters {
  real mu;
  real<lower=0> sigma;
}
model {
  for (i in 1 : N) {
    target += log_lik_i(i, y, mu, sigma);
  }
}
