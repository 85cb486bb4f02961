// A mixture whose terms are kept outside of the loop.
data {
  int N;
  vector[N] y;
}
parameters {
  simplex[2] w;
  ordered[2] m;
}
model {
  vector[2] lps;
  for (n in 1 : N) {
    lps = log(w);
    for (k in 1 : 2) {
      lps[k] += normal_lpdf(y[n] | m[k], 1);
    }
    target += log_sum_exp(lps);
  }
}

