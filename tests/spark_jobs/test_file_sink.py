"""A file holds the lines of each batch once, whenever the process is killed."""

import multiprocessing
import os
import random
from itertools import count
from pathlib import Path

from spark_jobs.file_sink import LineFile

BATCHES = 150
LINES = 40
KILLS_MIN = 5
LIFETIME_MAX_S = 0.04


def lines_of(batch: int) -> list[bytes]:
    return [b"batch %d line %d" % (batch, number) for number in range(LINES)]


def write_batches(folder: Path) -> None:
    """Write the batches that are not committed, and commit each as Spark does, after its lines are stored."""
    target, commits = LineFile(folder / "lines.txt"), folder / "commits"
    commits.mkdir(exist_ok=True)
    for batch in range(len(os.listdir(commits)), BATCHES):
        target.write(batch, iter(lines_of(batch)))
        (commits / str(batch)).touch()


def test_kills_at_any_point_leave_the_file_of_an_undisturbed_run(tmp_path: Path) -> None:
    kills = 0
    for run in count():
        folder = tmp_path / str(run)
        folder.mkdir()
        kills += write_with_kills(folder)
        assert (folder / "lines.txt").read_bytes() == b"".join(
            line + b"\n" for batch in range(BATCHES) for line in lines_of(batch)
        )
        if kills >= KILLS_MIN:  # a run may be over before
            break


def write_with_kills(folder: Path) -> int:
    """Write all batches, with kills at random points; return how many there were."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    choose, kills = random.Random(), 0
    while True:
        writer = context.Process(target=write_batches, args=(folder,))
        writer.start()
        writer.join(choose.uniform(0, LIFETIME_MAX_S) if kills < 1000 else None)
        writer.kill()
        writer.join()
        if writer.exitcode == 0:
            return kills
        kills += 1
