// The horseshoe of horseshoe.stan from sufficient statistics: with [1 x] = Q R, the rows R b and Q'y, and the sum of the
// squares of the rest of y.
data { int<lower=1> N; int<lower=1> K; vector[K + 1] qy; matrix[K + 1, K + 1] r; real<lower=0> rest; }
parameters { real alpha; vector[K] z; vector<lower=0>[K] lambda; real<lower=0> tau; real<lower=0> sigma; }
transformed parameters { vector[K] beta = tau * lambda .* z; }
model {
  alpha ~ normal(0, 2); z ~ std_normal(); lambda ~ student_t(3, 0, 1); tau ~ student_t(3, 0, 0.1); sigma ~ exponential(1);
  qy ~ normal(r * append_row(alpha, beta), sigma);
  target += -(N - K - 1) * log(sigma) - rest / (2 * square(sigma));
}
