# Stan programs and data of brms's own, for formulas of many kinds: Rscript brms.R FOLDER N
# Writes NAME.stan and NAME.R (as rstan::stan_rdump does) for each, and formulas.csv, which says what each is.
suppressPackageStartupMessages(library(brms))
arguments <- commandArgs(trailingOnly = TRUE)
folder <- arguments[1]
n <- as.integer(arguments[2])
set.seed(1)

f <- factor(sample(c("a", "b", "c"), n, TRUE))
g <- factor(sample(20, n, TRUE))
h <- factor(sample(8, n, TRUE))
d <- data.frame(x1 = rnorm(n), x2 = rnorm(n), x3 = runif(n), x4 = runif(n), f, g, h, z = exp(rnorm(n, 0, 0.3)),
                o = ordered(sample(4, n, TRUE)), t = rep(seq_len(n / 10), 10), series = factor(rep(1:10, each = n / 10)),
                nested = factor(sample(5, n, TRUE)), g2 = factor(sample(20, n, TRUE)))
eta <- 0.3 + 0.4 * d$x1 - 0.2 * d$x2 + rnorm(20, 0, 0.3)[g] + rnorm(8, 0, 0.2)[h]
d$y <- eta + rnorm(n, 0, 0.7)
d$y2 <- 0.5 * d$y + rnorm(n)
d$positive <- exp(0.5 * eta + rnorm(n, 0, 0.4))
d$count <- rpois(n, exp(0.5 * eta))
d$zeros <- ifelse(runif(n) < 0.2, 0L, d$count)
d$hurdle <- ifelse(runif(n) < 0.2, 0, d$positive)
d$binary <- rbinom(n, 1, plogis(eta))
d$trials <- sample(5:15, n, TRUE)
d$hits <- rbinom(n, d$trials, plogis(eta))
d$share <- pmin(pmax(rbeta(n, 5 * plogis(eta), 5 * plogis(-eta)), 1e-6), 1 - 1e-6)
d$share01 <- ifelse(runif(n) < 0.1, 0, ifelse(runif(n) < 0.1, 1, d$share))
d$share0 <- ifelse(runif(n) < 0.1, 0, d$share)
d$rating <- ordered(pmin(5, pmax(1, round(3 + eta + rnorm(n)))))
d$class <- factor(sample(c("u", "v", "w"), n, TRUE))
d$angle <- runif(n, -3, 3)
d$w <- runif(n, 0.5, 1.5)
d$censored <- sample(c("none", "right", "left"), n, TRUE, c(0.8, 0.1, 0.1))
d$right <- sample(0:1, n, TRUE, c(0.8, 0.2))
d$upper <- d$y + runif(n)
d$interval <- ifelse(runif(n) < 0.2, "interval", "none")
d$se <- runif(n, 0.1, 0.5)
d$sub <- runif(n) < 0.7
d$missing <- ifelse(runif(n) < 0.1, NA, d$y)
d$xmissing <- ifelse(runif(n) < 0.1, NA, d$x3)
d$truncated <- pmax(d$y, -1)
kept <- d[d$y > -1, ]

NOT_A_SUM <- list(gp = "a Gaussian process", arma = "moving average errors", spatial = "a spatial model",
                  latent = "a parameter for each observation",
                  support = "a bound of a parameter by the residuals of all observations")
# formula, family, what is not a sum about it, further arguments; with ar(cov = TRUE), the sum is over series
cases <- list(
  gaussian = list(y ~ x1 + x2 + f),
  gaussian_no_intercept = list(y ~ 0 + Intercept + x1),
  gaussian_interaction = list(y ~ x1 * f + poly(x2, 2)),
  student = list(y ~ x1, student()),
  skew_normal = list(y ~ x1, skew_normal()),
  asym_laplace = list(y ~ x1, asym_laplace()),
  quantile = list(bf(y ~ x1, quantile = 0.9), asym_laplace()),
  exgaussian = list(positive ~ x1, exgaussian()),
  gen_extreme_value = list(y ~ x1, gen_extreme_value(), "support"),
  lognormal = list(positive ~ x1, lognormal()),
  shifted_lognormal = list(positive ~ x1, shifted_lognormal()),
  gamma = list(positive ~ x1, Gamma("log")),
  exponential = list(positive ~ x1, exponential()),
  weibull = list(positive ~ x1, weibull()),
  frechet = list(positive ~ x1, frechet()),
  inverse_gaussian = list(positive ~ x1, inverse.gaussian("log")),
  hurdle_gamma = list(hurdle ~ x1, hurdle_gamma()),
  hurdle_lognormal = list(hurdle ~ x1, hurdle_lognormal()),
  bernoulli = list(binary ~ x1 + x2, bernoulli()),
  bernoulli_probit = list(binary ~ x1, bernoulli("probit")),
  bernoulli_cloglog = list(binary ~ x1, bernoulli("cloglog")),
  bernoulli_cauchit = list(binary ~ x1, bernoulli("cauchit")),
  binomial = list(hits | trials(trials) ~ x1, binomial()),
  beta_binomial = list(hits | trials(trials) ~ x1, beta_binomial()),
  zero_inflated_binomial = list(hits | trials(trials) ~ x1, zero_inflated_binomial()),
  poisson = list(count ~ x1, poisson()),
  poisson_offset = list(count ~ x1 + offset(log(z)), poisson()),
  poisson_rate = list(count | rate(z) ~ x1, poisson()),
  negbinomial = list(count ~ x1, negbinomial()),
  geometric = list(count ~ x1, geometric()),
  hurdle_poisson = list(zeros ~ x1, hurdle_poisson()),
  hurdle_negbinomial = list(zeros ~ x1, hurdle_negbinomial()),
  zero_inflated_poisson = list(bf(zeros ~ x1, zi ~ x2), zero_inflated_poisson()),
  zero_inflated_negbinomial = list(zeros ~ x1, zero_inflated_negbinomial()),
  discrete_weibull = list(count ~ x1, brmsfamily("discrete_weibull")),
  beta = list(share ~ x1, Beta()),
  beta_phi = list(bf(share ~ x1, phi ~ x2), Beta()),
  zero_inflated_beta = list(share0 ~ x1, zero_inflated_beta()),
  zero_one_inflated_beta = list(share01 ~ x1, zero_one_inflated_beta()),
  von_mises = list(angle ~ x1, von_mises()),
  cumulative = list(rating ~ x1, cumulative()),
  cumulative_probit = list(rating ~ x1, cumulative("probit")),
  cumulative_disc = list(bf(rating ~ x1, disc ~ 0 + x2), cumulative()),
  sratio = list(rating ~ x1, sratio()),
  cratio = list(rating ~ x1, cratio()),
  acat = list(rating ~ x1, acat()),
  category_specific = list(rating ~ x1 + cs(x2), acat()),
  categorical = list(class ~ x1, categorical()),
  distributional = list(bf(y ~ x1, sigma ~ x2)),
  nonlinear = list(bf(y ~ a + b * exp(-k * x3), a + b ~ 1, k ~ 1, nl = TRUE), gaussian(), NULL,
                   list(prior = prior(normal(0, 1), nlpar = "a") + prior(normal(0, 1), nlpar = "b") +
                          prior(normal(1, 0.5), nlpar = "k", lb = 0))),
  weights = list(y | weights(w) ~ x1),
  weights_poisson = list(count | weights(w) ~ x1, poisson()),
  censored = list(y | cens(censored) ~ x1),
  censored_weibull = list(positive | cens(right) ~ x1, weibull()),
  censored_interval = list(y | cens(interval, upper) ~ x1),
  truncated = list(y | trunc(lb = -1) ~ x1, gaussian(), NULL, list(data = kept)),
  truncated_poisson = list(count | trunc(ub = 40) ~ x1, poisson()),
  standard_errors = list(y | se(se) ~ x1),
  standard_errors_sigma = list(y | se(se, sigma = TRUE) ~ x1),
  subset = list(bf(y | subset(sub) ~ x1)),
  missing_response = list(missing | mi() ~ x1),
  missing_covariate = list(bf(y ~ mi(xmissing)) + bf(xmissing | mi() ~ x1) + set_rescor(FALSE)),
  measurement_error = list(y ~ me(x1, se), gaussian(), "latent"),
  monotonic = list(y ~ mo(o) + x1),
  monotonic_interaction = list(count ~ mo(o) * x1, poisson()),
  smooth = list(y ~ s(x3)),
  smooth_by = list(y ~ s(x3, by = f) + f),
  tensor = list(y ~ t2(x3, x4)),
  smooth_bernoulli = list(binary ~ s(x3) + s(x4), bernoulli()),
  gaussian_process_k = list(y ~ gp(x3, k = 5, c = 5 / 4)),
  gaussian_process = list(y ~ gp(x3), gaussian(), "gp"),
  groups = list(y ~ x1 + (1 | g)),
  groups_crossed = list(binary ~ x1 + (1 | g) + (1 | h), bernoulli()),
  groups_slopes = list(count ~ x1 + (1 + x1 | g), poisson()),
  groups_uncorrelated = list(y ~ x1 + (1 + x1 || g)),
  groups_nested = list(y ~ x1 + (1 | g / nested)),
  groups_student = list(y ~ x1 + (1 | gr(g, dist = "student"))),
  groups_by = list(y ~ x1 + (1 | gr(g, by = NULL))),
  groups_negbinomial = list(count ~ x1 + (1 | g) + (1 + x1 | h), negbinomial()),
  groups_ordinal = list(rating ~ x1 + (1 | g), cumulative()),
  multi_membership = list(y ~ x1 + (1 | mm(g, g2))),
  multivariate = list(bf(mvbind(y, y2) ~ x1) + set_rescor(TRUE)),
  multivariate_groups = list(bf(y ~ x1 + (1 | p | g)) + bf(y2 ~ x2 + (1 | p | g)) + set_rescor(FALSE)),
  mixture = list(y ~ x1, mixture(gaussian, gaussian), NULL,
                 list(prior = prior(normal(-1, 1), Intercept, dpar = mu1) + prior(normal(1, 1), Intercept, dpar = mu2))),
  autoregressive = list(y ~ x1 + ar(t, series, p = 1)),
  autoregressive_2 = list(y ~ x1 + ar(t, series, p = 2)),
  autoregressive_covariance = list(y ~ x1 + ar(t, series, cov = TRUE)),
  moving_average = list(y ~ x1 + ma(t, series), gaussian(), "arma"),
  threading = list(binary ~ x1 + x2, bernoulli(), NULL, list(threads = threading(2))),
  threading_groups = list(count ~ x1 + (1 | g), poisson(), NULL, list(threads = threading(2))),
  horseshoe = list(y ~ x1 + x2 + x3 + x4, gaussian(), NULL, list(prior = set_prior("horseshoe(1)"))),
  r2d2 = list(y ~ x1 + x2 + x3 + x4, gaussian(), NULL, list(prior = set_prior("R2D2(0.5)"))),
  lasso = list(y ~ x1 + x2 + x3 + x4, gaussian(), NULL, list(prior = set_prior("lasso(1)")))
)

described <- function(formula) {
  parts <- if (inherits(formula, "mvbrmsformula")) lapply(formula$forms, `[[`, "formula") else list(formula(formula))
  parts <- lapply(parts, function(part) if (inherits(part, "brmsformula")) part$formula else part)
  gsub("\\s+", " ", paste(sapply(parts, function(part) paste(deparse(part), collapse = " ")), collapse = ", "))
}

written <- data.frame()
for (name in names(cases)) {
  case <- cases[[name]]
  family <- if (length(case) > 1) case[[2]] else gaussian()
  why <- if (length(case) > 2 && !is.null(case[[3]])) NOT_A_SUM[[case[[3]]]] else ""
  more <- if (length(case) > 3) case[[4]] else list()
  given <- c(list(formula = case[[1]], family = family), more, if (is.null(more$data)) list(data = d))
  made <- tryCatch({
    code <- do.call(make_stancode, given)
    data <- do.call(make_standata, given)
    cat(code, file = file.path(folder, paste0(name, ".stan")))
    names(data) <- make.names(names(data))
    rstan::stan_rdump(names(data), file.path(folder, paste0(name, ".R")), envir = list2env(unclass(data)))
    TRUE
  }, error = function(e) {
    message(name, ": ", conditionMessage(e))
    FALSE
  })
  if (made) {
    written <- rbind(written, data.frame(name, about = described(case[[1]]), obstacle = why))
  }
}
write.csv(written, file.path(folder, "formulas.csv"), row.names = FALSE)
