// Ordinal regression, probit, category by category.
functions {
  real cumulative_probit_lpmf(int y, real mu, real disc, vector thres) {
    int nthres = num_elements(thres);
    if (y == 1) {
      return normal_lcdf(disc * (thres[1] - mu) | 0, 1);
    } else if (y == nthres + 1) {
      return normal_lccdf(disc * (thres[nthres] - mu) | 0, 1);
    }
    return log_diff_exp(normal_lcdf(disc * (thres[y] - mu) | 0, 1), normal_lcdf(disc * (thres[y - 1] - mu) | 0, 1));
  }
}
data {
  int<lower=1> N;
  array[N] int Y;
  int<lower=1> K;
  matrix[N, K] X;
  int<lower=1> Kc;
  int<lower=2> nthres;
  int prior_only;
}
transformed data {
  matrix[N, Kc] Xc;
  vector[Kc] means_X;
  for (i in 1:K) {
    means_X[i] = mean(X[, i]);
    Xc[, i] = X[, i] - means_X[i];
  }
}
parameters {
  vector[Kc] b;
  ordered[nthres] Intercept;
}
transformed parameters {
  real disc = 1;
  real lprior = 0;
  lprior += normal_lpdf(b | 0, 2);
  lprior += student_t_lpdf(Intercept | 3, 0, 2.5);
}
model {
  if (!prior_only) {
    vector[N] mu = rep_vector(0.0, N);
    mu += Xc * b;
    for (n in 1:N) {
      target += cumulative_probit_lpmf(Y[n] | mu[n], disc, Intercept);
    }
  }
  target += lprior;
}
generated quantities {
  vector[nthres] b_Intercept = Intercept + dot_product(means_X, b);
}
