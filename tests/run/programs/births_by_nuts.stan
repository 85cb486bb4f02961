// The posterior of examples/births.stan in coordinates that suit NUTS: sums that the data determine, beside directions
// that only the priors determine. The map is linear, with a determinant of 1.
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
  // orthogonal: a constant column first; then, for years and days, their trend
  matrix[n_states, n_states] q_state;
  matrix[n_years, n_years] q_year;
  matrix[n_weekdays, n_weekdays] q_weekday;
  matrix[n_days, n_days] q_day;
  real trend;
  real trend_year;
  real trend_day;
}
parameters {
  real eta;
  vector[n_states] v_state;
  vector[n_states] v_slope;
  vector[n_years] v_year;
  vector[n_weekdays] v_weekday;
  vector[n_days] v_day;
  real<lower=0> sd_state;
  real<lower=0> sd_slope;
  real<lower=0> sd_year;
  real<lower=0> sd_weekday;
  real<lower=0> sd_day;
  real<lower=0> phi;
}
transformed parameters {
  real slope = v_slope[1] / sqrt(n_states);
  real alpha = eta - v_state[1] / sqrt(n_states) - v_year[1] / sqrt(n_years) - v_weekday[1] / sqrt(n_weekdays)
               - v_day[1] / sqrt(n_days) - slope * trend;
  vector[n_states] a_state = q_state * v_state;
  vector[n_states] b_state = q_state * v_slope;
  vector[n_years] a_year = q_year * v_year - slope * trend_year * q_year[, 2];
  vector[n_weekdays] a_weekday = q_weekday * v_weekday;
  vector[n_days] a_day = q_day * v_day - slope * trend_day * q_day[, 2];
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
