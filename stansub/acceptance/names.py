"""Names of the stopping rules and where they are, without importing them: the command line answers at once."""

RULE_HOMES: dict[str, str] = {
    "austerity": "stansub.acceptance.student:Austerity",
    "pocock": "stansub.acceptance.student:Pocock",
    "hoeffding": "stansub.acceptance.bounds:Hoeffding",
    "bernstein": "stansub.acceptance.bounds:Bernstein",
    "bernstein-serfling": "stansub.acceptance.bounds:BernsteinSerfling",
    "barker": "stansub.acceptance.noise:Barker",
    "penalty": "stansub.acceptance.noise:Penalty",
    "factorised": "stansub.acceptance.stopping:Factorised",
    "poisson": "stansub.acceptance.stopping:Poisson",
    "exact": "stansub.acceptance.stopping:Exact",
}
TEST_NAMES = tuple(RULE_HOMES)
# Where the bounds of decisions by thinning come from.
BOUNDS = ("proved", "learned")
