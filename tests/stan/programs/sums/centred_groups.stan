// Groups with more variables than the observations have.
data {
  int J;
  int N;
  array[N] int g;
  vector[N] y;
  vector[J] u1;
  vector[J] u2;
  vector[J] u3;
}
parameters {
  real m;
  vector[3] c;
  real<lower=0> tau;
  vector[J] theta;
  real<lower=0> s;
}
model {
  theta ~ normal(m + c[1] * u1 + c[2] * u2 + c[3] * u3, tau);
  for (n in 1 : N) {
    y[n] ~ normal(theta[g[n]], s);
  }
}

