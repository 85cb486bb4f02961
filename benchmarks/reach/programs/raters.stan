// True classes of items that several raters classified, summed out.
data {
  int<lower=1> I;
  int<lower=1> R;
  array[I, R] int<lower=0, upper=1> y;
}
parameters {
  real<lower=0, upper=1> prevalence;
  vector<lower=0.5, upper=1>[R] sensitivity;
  vector<lower=0.5, upper=1>[R] specificity;
}
model {
  sensitivity ~ beta(8, 2);
  specificity ~ beta(8, 2);
  for (i in 1:I) {
    real positive = log(prevalence);
    real negative = log1m(prevalence);
    for (r in 1:R) {
      positive += bernoulli_lpmf(y[i, r] | sensitivity[r]);
      negative += bernoulli_lpmf(y[i, r] | 1 - specificity[r]);
    }
    target += log_sum_exp(positive, negative);
  }
}
