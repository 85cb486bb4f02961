// The log likelihood is added up in a variable.
data {
  int N;
  vector[N] y;
}
parameters {
  real m;
}
model {
  real total = 0;
  for (n in 1 : N) {
    total += normal_lpdf(y[n] | m, 1);
  }
  target += total;
}

