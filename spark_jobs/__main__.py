"""The command line of all jobs: `bin/spark-job`, or `python -m spark_jobs`."""

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle

from spark_jobs.skeleton.catalog import jobs, write_template

_USAGE = """Usage: spark-job NAME [FLAG...]       run a job; spark-job NAME --help lists its flags
       spark-job PATH.py [FLAG...]    run a job of your own
       spark-job --list               list the jobs
       spark-job --new NAME           write NAME.py, the template of a job of your own"""


def main(arguments: Sequence[str]) -> int:
    match arguments:
        case ["--list"]:
            print_list()
            return 0
        case ["--help" | "-h"]:
            print(_USAGE)
            return 0
        case ["--new", name]:
            return _new(name)
        case [name, *flags] if name.endswith(".py"):
            return _run_file(Path(name), flags)
        case [name, *flags] if name in jobs():
            return _run(importlib.import_module(f"spark_jobs.{name}"), flags)
    print(_USAGE, file=sys.stderr)
    if arguments and not arguments[0].startswith("-"):
        print(f"spark-job: there is no job {arguments[0]!r}; spark-job --list lists them", file=sys.stderr)
    return 2


def print_list() -> None:
    """Print one line per job."""
    lines = jobs()
    width = max(map(len, lines))
    for name, line in lines.items():
        print(f"{name:{width}}  {line}")


def _new(name: str) -> int:
    try:
        path = write_template(name, Path.cwd())
    except (ValueError, OSError) as error:
        print(f"spark-job: {error}", file=sys.stderr)
        return 2
    print(f"{path.name} is written; run it: spark-job ./{path.name} --help")
    return 0


def _run(module: ModuleType, flags: Sequence[str]) -> int:
    run: Callable[[Sequence[str]], int] = module.JOB.main if hasattr(module, "JOB") else module.main
    return run(flags)


def _run_file(path: Path, flags: Sequence[str]) -> int:
    if not path.is_file():
        print(f"spark-job: {path} does not exist", file=sys.stderr)
        return 2
    sys.path.insert(0, str(path.resolve().parent))
    module = importlib.import_module(path.stem)
    cloudpickle.register_pickle_by_value(module)  # Spark's workers cannot import it
    return _run(module, flags)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
