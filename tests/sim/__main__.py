"""Runs seeds of the simulator: `python -m tests.sim --seed N --trace`, or many with `--seeds A-B` or `--minutes M`.

`--guards` removes one guard at a time, and prints how many seeds it takes until one fails. See docs/simulation.md.
"""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from multiprocessing.pool import AsyncResult

from tests.sim.faults import Fault
from tests.sim.guards import all_guards, line_of, rule_without
from tests.sim.run import BROKERS, Outcome, clients_of, run_alone, run_seed
from tests.sim.shrink import shrunk

AHEAD = 4
"""How many seeds wait for each worker, or run in it, so that none waits for a slow one."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    if options.seed is not None:
        return _replay(options)
    if options.guards is not None:
        return _measure_guards(options)
    outcomes = _run_all(_seeds(options), options.brokers, options.workers)
    failed, totals, count = [], Counter[str](), 0
    for outcome in outcomes:
        count += 1
        totals.update(outcome.counts)
        totals["runs that count"] += outcome.counts_as_test
        if outcome.violations:
            failed.append(outcome.seed)
            print(f"seed {outcome.seed}: {outcome.violations[0].rule}: {outcome.violations[0].text}", flush=True)
    print_counts(count, totals)
    if failed:
        print(f"{len(failed)} of {count} seeds failed; replay one with: python -m tests.sim --seed {failed[0]} --trace")
    return 1 if failed else 0


def print_counts(count: int, totals: Counter[str]) -> None:
    print(f"{count} seeds")
    for name, number in sorted(totals.items()):
        print(f"{number:9,} {name}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="run one seed; if it fails, shrink it")
    parser.add_argument("--trace", action="store_true", help="print the trace, and the log of the brokers to stderr")
    parser.add_argument("--seeds", default="1-20", help="the first and the last seed to run (default: %(default)s)")
    parser.add_argument(
        "--minutes", type=float, help="run new seeds for this time, beginning with the first of --seeds"
    )
    parser.add_argument("--brokers", type=int, default=BROKERS, help="(default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--faults", help="the numbers of the faults to keep, for example 1,3 (default: all)")
    parser.add_argument("--clients", help="the names of the clients to keep (default: all)")
    parser.add_argument(
        "--guards", nargs="*", metavar="TEXT", help="remove each guard whose name contains a text (default: every one)"
    )
    parser.add_argument(
        "--catches", type=int, default=5, help="with --guards: go on after so many failing seeds (default: %(default)s)"
    )
    parser.add_argument("--no-shrink", action="store_true", help="do not shrink a failing seed")
    return parser.parse_args(arguments)


def _seeds(options: argparse.Namespace) -> Iterator[int]:
    first, _, last = options.seeds.partition("-")
    if options.minutes is None:
        yield from range(int(first), int(last or first) + 1)
        return
    end_s = time.monotonic() + 60 * options.minutes
    seed = int(first)
    while time.monotonic() < end_s:
        yield seed
        seed += 1


def _run_all(seeds: Iterable[int], brokers: int, workers: int) -> Iterator[Outcome]:
    with multiprocessing.get_context("spawn").Pool(workers, maxtasksperchild=200) as pool:
        # imap would read its input ahead without bound.
        under_way = deque[AsyncResult[Outcome]]()
        for seed in seeds:
            under_way.append(pool.apply_async(run_alone, (brokers, seed)))
            if len(under_way) == AHEAD * workers:
                yield under_way.popleft().get()
        for result in under_way:
            yield result.get()


def _measure_guards(options: argparse.Namespace) -> int:
    """Print the row of each guard: how many random seeds run until one fails without it."""
    first, _, last = options.seeds.partition("-")
    missed = 0
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for name in all_guards():
            if options.guards and not any(text in name for text in options.guards):
                continue
            rules: dict[int, str] = {}
            seed = int(first)
            while seed <= int(last or first) and len(rules) < options.catches:
                portion = range(seed, min(seed + 2 * options.workers, int(last or first) + 1))
                found = pool.map(partial(rule_without, name, options.brokers), portion, chunksize=1)
                rules.update((one, rule) for one, rule in found if rule is not None)
                seed = portion.stop
            missed += not rules
            print(line_of(name, rules, int(first), seed - 1), flush=True)
    return 1 if missed else 0


def _replay(options: argparse.Namespace) -> int:
    every = run_seed(options.seed, brokers=options.brokers, clients=[], faults=None).faults
    numbers = range(len(every)) if options.faults is None else map(int, filter(None, options.faults.split(",")))
    faults = [every[number] for number in numbers]
    clients = (
        list(clients_of(options.brokers))
        if options.clients is None
        else [name for name in options.clients.split(",") if name]
    )
    if options.trace:
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    outcome = run_seed(options.seed, brokers=options.brokers, clients=clients, faults=faults, traced=options.trace)
    if outcome.violations and not options.no_shrink:
        faults, clients = _shrink(options, outcome, faults, clients)
        outcome = run_seed(options.seed, brokers=options.brokers, clients=clients, faults=faults, traced=options.trace)
    for line in outcome.trace:
        print(line)
    print_counts(1, outcome.counts)
    for number, fault in enumerate(every):
        print(f"fault {number}: {fault}" + ("" if fault in faults else " (left out)"))
    for violation in outcome.violations:
        print(f"VIOLATION of {violation.rule}: {violation.text}")
    if outcome.violations:
        kept = ",".join(str(every.index(fault)) for fault in faults)
        print(
            f"again: python -m tests.sim --seed {options.seed} --brokers {options.brokers} --faults '{kept}' "
            f"--clients '{','.join(clients)}' --no-shrink --trace"
        )
    return 1 if outcome.violations else 0


def _shrink(
    options: argparse.Namespace, outcome: Outcome, faults: Sequence[Fault], clients: Sequence[str]
) -> tuple[list[Fault], list[str]]:
    rule = outcome.violations[0].rule

    def fails(some_faults: Sequence[Fault], some_clients: Sequence[str]) -> bool:
        again = run_seed(options.seed, brokers=options.brokers, clients=some_clients, faults=some_faults)
        gc.collect()
        return any(violation.rule == rule for violation in again.violations)

    return shrunk(faults, clients, fails)


if __name__ == "__main__":
    sys.exit(main())
