// Linear regression with a horseshoe prior.
data { int<lower=1> N; int<lower=1> K; vector[N] y; matrix[N, K] x; }
parameters { real alpha; vector[K] z; vector<lower=0>[K] lambda; real<lower=0> tau; real<lower=0> sigma; }
transformed parameters { vector[K] beta = tau * lambda .* z; }
model {
  alpha ~ normal(0, 2); z ~ std_normal(); lambda ~ student_t(3, 0, 1); tau ~ student_t(3, 0, 0.1); sigma ~ exponential(1);
  y ~ normal(alpha + x * beta, sigma);
}
