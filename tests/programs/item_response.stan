// Two-parameter logistic: an answer reads three of the parameters, and the priors read all.
data {
  int<lower=1> I;
  int<lower=1> J;
  int<lower=1> N;
  array[N] int<lower=1, upper=I> item;
  array[N] int<lower=1, upper=J> person;
  array[N] int<lower=0, upper=1> y;
}
parameters {
  vector[J] ability;
  vector[I] difficulty;
  vector<lower=0>[I] slope;
  real mean_difficulty;
  real<lower=0> sd_difficulty;
}
model {
  ability ~ std_normal();
  difficulty ~ normal(mean_difficulty, sd_difficulty);
  slope ~ lognormal(0, 0.5);
  mean_difficulty ~ normal(0, 2);
  sd_difficulty ~ exponential(1);
  y ~ bernoulli_logit(slope[item] .* (ability[person] - difficulty[item]));
}
