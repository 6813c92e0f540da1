"""`python -m milena_broker MODULE [ARGUMENT...]`: runs modules that have no console script, such as the Spark jobs."""

import sys

from milena_broker.commands import run

USAGE = (
    "USAGE: python -m milena_broker MODULE [ARGUMENT...], for example: python -m milena_broker spark_jobs.flights_daily"
)

if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(USAGE)
    module = sys.argv.pop(1)
    raise SystemExit(run(module))
