// Item response model with two parameters an item.
data { int<lower=1> N; int<lower=1> I; int<lower=1> P; array[N] int<lower=0, upper=1> y; array[N] int item; array[N] int person; }
parameters { vector[I] log_a; vector[I] b; vector[P] theta; real<lower=0> sigma_a; real<lower=0> sigma_b; }
transformed parameters { vector[I] a = exp(log_a); }
model {
  theta ~ std_normal(); log_a ~ normal(0, sigma_a); b ~ normal(0, sigma_b); sigma_a ~ normal(0, 1); sigma_b ~ normal(0, 1);
  y ~ bernoulli_logit(a[item] .* (theta[person] - b[item]));
}
