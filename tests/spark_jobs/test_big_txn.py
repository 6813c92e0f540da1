"""Transactions above the threshold become alerts; the hook reads them."""

import json
from pathlib import Path

import pytest

from spark_jobs.big_txn import JOB, call_hook
from spark_jobs.samples import transactions
from spark_jobs.skeleton.errors import JobError
from tests.spark_jobs.conftest import JobRunner, Topics, objects, record_ids, records

pytestmark = pytest.mark.spark


def script(folder: Path, text: str) -> str:
    path = folder / "hook"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_amounts_above_the_threshold_are_reported_once(topics: Topics, job_runner: JobRunner, tmp_path: Path) -> None:
    source, target = topics.create("transactions", 1), topics.create("alerts", 1)
    edge = [{"id": "edge", "amount": 10_000}, {"id": "above", "amount": 10_000.01}]
    sent = [*transactions(500, seed=1), *edge]
    topics.send(source, objects(*sent))
    hook = script(tmp_path, f"cat >> {tmp_path}/mail")
    job_runner.run(JOB, "--input", source, "--output", target, "--hook", hook)
    expected = [transaction for transaction in sent if float(str(transaction["amount"])) > 10_000]
    assert 1 < len(expected) < 500
    found = topics.read(target)
    assert [json.loads(str(value)) for _, value in records(found)] == expected
    assert record_ids(found) == [f"{source}/0/{sent.index(transaction)}" for transaction in expected]
    assert [json.loads(line) for line in (tmp_path / "mail").read_text().splitlines()] == expected


def test_a_hook_that_fails_is_named_with_its_error(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"hook exited with 3: no mail server"):
        call_hook(script(tmp_path, "echo no mail server >&2; exit 3"), ["{}"])


def test_a_hook_reads_each_alert_on_a_line_of_its_own(tmp_path: Path) -> None:
    call_hook(script(tmp_path, f"cat > {tmp_path}/mail"), ['{\n  "id": "ä",\r\n  "amount": 1\n}', "{}"])
    assert [json.loads(line) for line in (tmp_path / "mail").read_text("utf-8").splitlines()] == [
        {"id": "ä", "amount": 1},
        {},
    ]


def test_a_hook_is_not_called_without_alerts(tmp_path: Path) -> None:
    call_hook(script(tmp_path, "exit 3"), [])


def test_a_hook_that_does_not_exist_is_refused(
    job_runner: JobRunner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        job_runner.parse(JOB, "--hook", str(tmp_path / "none"))
    assert f"argument --hook: expected a program, not '{tmp_path}/none'" in capsys.readouterr().err
