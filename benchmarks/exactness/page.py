"""The report: what agrees with the references, by how much the rest is off, and tables of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from agreement import LEVEL, STATISTICS, Comparison, compare, limit_of
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from posteriors import POSTERIORS
from study import IMPORTANCE, NORMAL, NUTS, Row, estimates_of
from ways import WAYS

# A fiftieth of an sd for a million effective draws, some ten standard errors of a tail quantile.
_TOLERANCE = 20.0

# Posterior, way, reference.
Key = tuple[str, str, str]


def is_exact(way: str) -> bool:
    """Whether its draws are to be from the posterior."""
    return way == NUTS or (way in WAYS and WAYS[way].exact)


@dataclass(frozen=True)
class Findings:
    """Every way beside importance sampling, and exact ones beside NUTS.

    Attributes
    ----------
    rows : mapping
        By posterior and way.
    tolerance : float
        Difference that is let pass, in sds of the posterior.
    """

    rows: Mapping[tuple[str, str], Row]
    tolerance: float

    @classmethod
    def of(cls, rows: Sequence[Row], effective: float) -> Findings:
        return cls({(row["posterior"], row["way"]): row for row in rows}, _TOLERANCE / effective**0.5)

    @cached_property
    def compared(self) -> dict[Key, Comparison]:
        """What is compared with what."""
        found = {}
        for (posterior, way), row in self.rows.items():
            for reference in (IMPORTANCE, NUTS) if way in WAYS and WAYS[way].exact else (IMPORTANCE,):
                if way != reference:
                    other = self.rows[posterior, reference]
                    found[posterior, way, reference] = compare(estimates_of(row), estimates_of(other))
        return found

    @cached_property
    def limit(self) -> float:
        """Standard errors that no difference is beyond where all draws are from the posterior."""
        return limit_of([one for (_, way, _), one in self.compared.items() if is_exact(way)])

    @property
    def posteriors(self) -> list[str]:
        return list(dict.fromkeys(posterior for posterior, _ in self.rows))

    @property
    def ways(self) -> list[str]:
        """All but the weighted draws."""
        return [way for way in dict.fromkeys(way for _, way in self.rows) if way != IMPORTANCE]

    def state(self, key: Key) -> str:
        """Of one comparison."""
        return self.compared[key].state(self.tolerance, self.limit)

    def keys(self, way: str) -> list[Key]:
        """The comparisons of a way."""
        return [key for key in self.compared if key[1] == way]

    def worst(self, keys: Sequence[Key]) -> Key:
        """The comparison with the largest difference."""
        return max(keys, key=lambda key: np.abs(self.compared[key].differences).max())

    def states(self, way: str) -> set[str]:
        """Of all comparisons of a way."""
        return {self.state(key) for key in self.keys(way)}

    @property
    def passed(self) -> bool:
        """Whether every exact way agrees with every reference."""
        return all(self.state(key) == "agrees" for key in self.compared if is_exact(key[1]))


def write(result: Mapping[str, Any], found: Findings, folder: Path) -> Path:
    """Write the page."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).resolve().parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    approximate = [way for way in found.ways if way in WAYS and not WAYS[way].exact]
    facts = {
        "command": result["command"],
        "effective": f"{result['effective']:,}",
        "machine": result["machine"],
        "tolerance": f"{found.tolerance:.2g}",
        "limit": f"{found.limit:.1f}",
        "chance": f"{100 * (1 - LEVEL):g}",
        "n_compared": sum(one.differences.size for key, one in found.compared.items() if is_exact(key[1])),
        "exact": [_exact_text(found, way) for way in found.ways if way in WAYS and WAYS[way].exact],
        "nuts": _exact_text(found, NUTS),
        "approximate": [_approximate_text(found, way) for way in approximate],
        "any_fails": any("differs" in found.states(way) for way in approximate),
        "n_approximate": len(approximate),
        "control": _approximate_text(found, NORMAL),
        "posteriors": [_posterior_cells(found, name) for name in found.posteriors],
        "ways": [_cells(found, key) for way in found.ways for key in found.keys(way)],
        "parameters": [row for name in found.posteriors for row in _parameter_cells(found, name)],
        "statistics": STATISTICS,
    }
    path = folder / "README.md"
    path.write_text(environment.get_template("page.md").render(facts), encoding="utf-8")
    return path


def _place(found: Findings, key: Key) -> str:
    """Where a comparison's difference is largest, and how large with its Monte Carlo standard error."""
    one = found.compared[key]
    statistic, parameter = one.largest
    name = found.rows[key[0], key[1]]["parameters"][parameter]
    quantity = f"the {STATISTICS[statistic]}{' quantile' if '%' in STATISTICS[statistic] else ''} of `{name}`"
    return f"{_number(one, one.largest)} sd ({quantity} of {key[0]})"


def _number(one: Comparison, place: tuple[int, int]) -> str:
    return f"{one.differences[place]:+.4f} ± {one.errors[place]:.4f}".replace("-", "−")


def _exact_text(found: Findings, way: str) -> str:
    keys = found.keys(way)
    off = [key for key in keys if found.state(key) != "agrees"]
    if off:
        lines = [f"{key[0]} against {key[2]} {found.state(key)}: {_place(found, key)}" for key in off]
        return f"**{way} does not pass**: {'; '.join(lines)}"
    worst = found.worst(keys)
    z = max(float(np.abs(found.compared[key].z).max()) for key in keys)
    least = min(found.rows[key[0], way]["effective"] for key in keys)
    beside = " and ".join(dict.fromkeys(key[2] for key in keys))
    return (
        f"{way} agrees with {beside} on all posteriors: with at least {least:,.0f} effective draws, no difference "
        f"exceeds {_place(found, worst)} or {z:.1f} standard errors"
    )


def _approximate_text(found: Findings, way: str) -> str:
    keys = found.keys(way)
    off = [key for key in keys if found.state(key) == "differs"]
    worst = _place(found, found.worst(off or keys))
    about = f"{way} ({WAYS[way].about})" if way in WAYS else way
    if off:
        names = ", ".join(key[0] for key in off)
        return f"{about} differs on {len(off)} of {len(keys)} posteriors ({names}), by up to {worst}"
    least = min(found.rows[key[0], way]["effective"] for key in keys)
    return f"{about} shows no difference with at least {least:,.0f} effective draws: at most {worst}"


def _posterior_cells(found: Findings, name: str) -> list[str]:
    row, posterior = found.rows[name, IMPORTANCE], POSTERIORS[name]
    skewness = max(row["skewness"], key=abs)
    data = posterior.data
    return [
        f"{name}: {posterior.about}",
        f"{data['N']:,}",
        f"{int(data['y'].sum()):,}",
        f"{len(row['parameters'])}",
        f"{skewness:.2f}".replace("-", "−"),
        f"{row['weighted_effective']:,.0f} of {row['weighted']:,}",
        f"{row['pareto_k']:.2f}".replace("-", "−"),
        f"{found.rows[name, NUTS]['effective']:,.0f}",
    ]


def _cells(found: Findings, key: Key) -> list[str]:
    """The largest difference of each statistic, and the verdict."""
    posterior, way, reference = key
    one, row = found.compared[key], found.rows[posterior, way]
    places = [(k, int(np.abs(one.differences[k]).argmax())) for k in range(len(STATISTICS))]
    texts = [_number(one, place) for place in places]
    state, evaluated = found.state(key), row.get("evaluated")
    return [
        *(way, posterior, reference, f"{row['effective']:,.0f}", f"{row['seconds']:.0f}"),
        *("" if evaluated is None else f"{evaluated:.2g}" if evaluated < 10 else f"{evaluated:,.0f}", *texts),
        *(f"{np.abs(one.z).max():.1f}", f"**{state}**" if state != "agrees" else state),
    ]


def _parameter_cells(found: Findings, posterior: str) -> list[list[str]]:
    one = found.compared[posterior, "factorised", IMPORTANCE]
    names = found.rows[posterior, "factorised"]["parameters"]
    return [
        [posterior, f"`{name}`", *(_number(one, (row, column)) for row in range(len(STATISTICS)))]
        for column, name in enumerate(names)
    ]
