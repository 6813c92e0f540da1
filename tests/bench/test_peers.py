"""The servers beside Milena: which of them run, and that each of them runs a case."""

import argparse
from pathlib import Path

import pytest

from bench import kfake, run, servers
from bench.cases import CASES
from bench.names import KAFKA, KAFKA_4, KFAKE, MILENA, MILENA_BEFORE, PEERS
from bench.subject import Subject, running
from tests.bench.test_cases import TINY, names
from tests.support.commands import ROOT
from tests.support.java import UnavailableError
from tests.support.parts import skip_when_unavailable


def test_peers_are_chosen_by_name_in_one_order() -> None:
    assert run._peers("kfake,kafka-3.9") == [KAFKA, KFAKE]
    with pytest.raises(argparse.ArgumentTypeError, match="'kafka-5' is not a peer, expected some of"):
        run._peers("kafka-3.9,kafka-5")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], [MILENA, KAFKA]),
        (["--only", KAFKA], [KAFKA]),
        (["--peers", "kfake"], [MILENA, KFAKE]),
        (["--before", str(ROOT)], [MILENA, MILENA_BEFORE]),
        (["--before", str(ROOT), "--peers", "kafka-3.9"], [MILENA, KAFKA, MILENA_BEFORE]),
    ],
)
def test_servers_are_those_of_the_options(
    options: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["bench.run", *options])
    assert run._names(run._parse()) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--before", "/nowhere"],
            "'/nowhere' has no bin/kafka-server-start, expected the root of a version of Milena",
        ),
        (["--only", KAFKA, "--before", str(ROOT)], "--only measures one server alone"),
    ],
)
def test_wrong_options_are_refused(
    options: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench.run", *options])
    with pytest.raises(SystemExit, match="2"):
        run._parse()
    assert message in capsys.readouterr().err


def test_missing_peer_is_left_out_unless_all_others_are_measured_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise UnavailableError("no jar")

    monkeypatch.setattr(servers, "_PROGRAMS", {KAFKA: Path, KAFKA_4: missing})
    assert servers.missing_programs([MILENA, KAFKA, KAFKA_4]) == {KAFKA_4: "no jar"}
    monkeypatch.setattr(servers, "_PROGRAMS", {KAFKA: missing})
    with pytest.raises(UnavailableError):
        servers.missing_programs([MILENA, KAFKA])


def test_kfake_without_go_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kfake, "PROGRAMS", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="install the version"):
        kfake.kfake_program()


def test_peer_that_fails_the_uncounted_run_is_left_out_of_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def produce(subject: Subject, _: object) -> dict[str, float]:
        calls.append(subject.name)
        if subject.name != KAFKA:
            raise RuntimeError("no such version")
        return {"rate": 1.0}

    measured = run.Run(TINY, run.Steps(10))
    case = run.replace(next(case for case in CASES if case.name == "produce-8-in-flight"), on_running=produce)
    subjects = [object.__new__(Subject) for _ in (KAFKA, KFAKE)]
    for subject, name in zip(subjects, (KAFKA, KFAKE), strict=True):
        subject.name = name
    measured.on_running_servers(case, subjects)
    assert calls == [KAFKA, KFAKE, KAFKA]
    assert measured.left_out == ["1 record, 8 in flight: kfake, not counted: no such version"]
    assert not measured.failures


def launcher_that(does: str, folder: Path) -> None:
    launcher = folder / servers.LAUNCHER
    launcher.parent.mkdir(parents=True)
    launcher.write_text(f"#!/bin/sh\n{does}\n")
    launcher.chmod(0o755)


def test_version_before_is_started_by_its_launcher(tmp_path: Path) -> None:
    launcher_that(f'echo "$*" >> {tmp_path}/calls\nexec {ROOT}/{servers.LAUNCHER} "$@"', tmp_path / "before")
    assert "Milena" in servers.prepare_version(tmp_path / "before")
    before = servers.contenders([MILENA_BEFORE], tmp_path / "data", tmp_path / "before")
    with before as (contender,), running(contender.new_server({})):
        pass
    settings = tmp_path / "data" / MILENA_BEFORE / "0" / "server.properties"
    assert (tmp_path / "calls").read_text().splitlines() == ["--version", str(settings)]


def test_version_before_that_does_not_run_is_named(tmp_path: Path) -> None:
    launcher_that("exit 3", tmp_path)
    with pytest.raises(UnavailableError, match=f"{servers.LAUNCHER} --version exits with 3"):
        servers.prepare_version(tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("peer", PEERS)
def test_each_peer_runs_cases_of_produce_and_fetch(peer: str, tmp_path: Path) -> None:
    with skip_when_unavailable():
        if missing := servers.missing_programs([peer]):
            raise UnavailableError(missing[peer])
    with servers.contenders([peer], tmp_path) as (contender,):
        server = contender.new_server({})
        with running(server):
            subject = Subject(peer, server)
            for case in CASES:
                if case.name in ("produce-8-in-flight", "fetch-16k-pieces"):
                    assert case.on_running is not None
                    assert names(case.measures) <= case.on_running(subject, TINY).keys()
