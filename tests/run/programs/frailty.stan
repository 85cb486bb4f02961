data {
  int N; int J; int T; array[N] int id; array[N] int interval; vector[N] x; vector[N] exposure; array[N] int d;
}
parameters {
  vector<lower=0>[T] lambda; real beta; vector<lower=0>[J] w; real<lower=0> theta;
}
model {
  lambda ~ gamma(0.1, 0.1);
  beta ~ normal(0, 1);
  theta ~ exponential(1);
  w ~ gamma(1 / theta, 1 / theta);
  d ~ poisson(exposure .* lambda[interval] .* exp(beta * x) .* w[id]);
}
