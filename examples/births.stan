// Births in each state on each day: how do days of the year differ, given state, year and weekday?
data {
  int<lower=0> N;
  int<lower=1> n_states;
  int<lower=1> n_years;
  int<lower=1> n_weekdays;
  int<lower=1> n_days;
  array[N] int<lower=0> births;
  array[N] int<lower=1, upper=n_states> state;
  array[N] int<lower=1, upper=n_years> year;
  array[N] int<lower=1, upper=n_weekdays> weekday;
  array[N] int<lower=1, upper=n_days> day;
  vector[N] decade;
}
parameters {
  real alpha;
  vector[n_states] a_state;
  vector[n_states] b_state;
  vector[n_years] a_year;
  vector[n_weekdays] a_weekday;
  vector[n_days] a_day;
  real<lower=0> sd_state;
  real<lower=0> sd_slope;
  real<lower=0> sd_year;
  real<lower=0> sd_weekday;
  real<lower=0> sd_day;
  real<lower=0> phi;
}
model {
  alpha ~ normal(5, 2);
  a_state ~ normal(0, sd_state);
  b_state ~ normal(0, sd_slope);
  a_year ~ normal(0, sd_year);
  a_weekday ~ normal(0, sd_weekday);
  a_day ~ normal(0, sd_day);
  sd_state ~ normal(0, 2);
  sd_slope ~ normal(0, 1);
  sd_year ~ normal(0, 1);
  sd_weekday ~ normal(0, 1);
  sd_day ~ normal(0, 1);
  phi ~ lognormal(4, 2);
  births ~ neg_binomial_2_log(alpha + a_state[state] + b_state[state] .* decade + a_year[year]
                              + a_weekday[weekday] + a_day[day], phi);
}
