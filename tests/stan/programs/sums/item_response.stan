// Two-parameter logistic item response.
data {
  int I;
  int J;
  int N;
  array[N] int ii;
  array[N] int jj;
  array[N] int y;
}
parameters {
  vector<lower=0>[I] a;
  vector[I] b;
  vector[J] theta;
}
model {
  theta ~ std_normal();
  a ~ lognormal(0.5, 1);
  b ~ normal(0, 10);
  y ~ bernoulli_logit(a[ii] .* (theta[jj] - b[ii]));
}

