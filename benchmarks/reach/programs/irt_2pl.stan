// Answers of persons to items: abilities, difficulties and discriminations.
data {
  int<lower=1> I;
  int<lower=1> J;
  int<lower=1> N;
  array[N] int<lower=1, upper=I> ii;
  array[N] int<lower=1, upper=J> jj;
  array[N] int<lower=0, upper=1> y;
}
parameters {
  vector<lower=0>[I] a;
  vector[I] b;
  vector[J] theta;
  real mu_b;
  real<lower=0> sigma_b;
}
model {
  a ~ lognormal(0, 0.5);
  b ~ normal(mu_b, sigma_b);
  theta ~ std_normal();
  mu_b ~ normal(0, 2);
  sigma_b ~ cauchy(0, 2);
  y ~ bernoulli_logit(a[ii] .* (theta[jj] - b[ii]));
}
