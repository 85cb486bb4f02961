"""Names of the stopping rules and their modules, without imports so that the command line starts fast."""

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
# Sources of the bounds of thinned decisions.
BOUNDS = ("proved", "learned")
