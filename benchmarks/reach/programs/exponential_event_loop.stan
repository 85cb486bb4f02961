// Survival with right censoring, a loop that asks for the kind of each observation.
data {
  int<lower=0> N;
  array[N] int<lower=0, upper=1> event;
  vector<lower=0>[N] time;
  vector[N] age;
}
parameters {
  real alpha;
  real beta;
}
model {
  alpha ~ normal(0, 5);
  beta ~ normal(0, 2);
  for (i in 1:N) {
    real rate = exp(alpha + beta * age[i]);
    if (event[i]) {
      time[i] ~ exponential(rate);
    } else {
      target += exponential_lccdf(time[i] | rate);
    }
  }
}
