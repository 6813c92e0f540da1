"""Every case runs with a real broker and returns the measures of its row in the table. No figure is checked."""

from collections.abc import Iterator, Sequence
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from bench import machine, request_loop
from bench.case import Case
from bench.cases import CASES, clients, connect, figures, spark
from bench.cluster import SETTINGS, ClusterSubject
from bench.measures import Measure
from bench.names import KAFKA, MILENA
from bench.processes import MIB
from bench.scale import Scale
from bench.servers import NEW_BROKERS
from bench.subject import Subject, running
from tests.support.broker import BrokerProcess
from tests.support.cluster import Cluster
from tests.support.coordination import coordination_in_memory
from tests.support.forked_programs import ForkedServer
from tests.support.java import SHORT_LIVED, java_command
from tests.support.parts import skip_when_unavailable

TINY = Scale(
    rounds=1,
    warm_up_s=0,
    lead_in_s=0.01,
    section_s=0.05,
    bulk_bytes=2 * MIB,
    bulk_sections=2,
    fetch_bytes=2 * MIB,
    memory_bytes=8 * MIB,
    idle_s=0,
    part=0.004,
)


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no rest of the machine, fork the workers, and start JVMs that last for seconds as such."""

    def quick_command(*program: Any, options: Sequence[str]) -> list[str]:
        return java_command(*program, options=[*options, *SHORT_LIVED])

    monkeypatch.setattr(machine, "settle", lambda *_: None)
    monkeypatch.setattr(connect, "ServerProcess", ForkedServer)
    for module in (clients, request_loop):
        monkeypatch.setattr(module, "java_command", quick_command)


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    server = BrokerProcess(tmp_path_factory.mktemp("broker"))
    with running(server):
        yield Subject("milena", server)


def names(measures: tuple[Measure, ...]) -> set[str]:
    return {measure.name for measure in measures}


def selected(kind: str) -> list[ParameterSet]:
    """Return the cases of a kind. Those that repeat a function with other sizes are soak tests.

    So are those with Spark, which start it for each of their topics, the figures with their many JVMs, and the cases
    that start many processes.
    """
    of_processes = ("cluster-replace", "connect-start", "connect-mirrormaker-2")
    long_cases = (*spark.CASES, *figures.CASES, *(it for it in CASES if it.name in of_processes))
    seen, parameters = set(), []
    for case in CASES:
        if (function := getattr(case, kind)) is not None:
            function = function.func if isinstance(function, partial) else function
            is_soak = case in long_cases or function in seen
            seen.add(function)
            parameters.append(pytest.param(case, id=case.name, marks=[pytest.mark.soak] if is_soak else []))
    return parameters


@pytest.mark.parametrize("case", selected("on_running"))
def test_cases_on_a_running_server_report_their_measures(subject: Subject, case: Case) -> None:
    assert case.on_running is not None
    values = case.on_running(subject, TINY)
    assert names(case.measures) <= values.keys()
    assert all(value >= 0 for value in values.values())


@pytest.mark.parametrize("case", selected("on_new"))
def test_cases_on_a_new_server_report_their_measures(tmp_path_factory: pytest.TempPathFactory, case: Case) -> None:
    assert case.on_new is not None
    values = case.on_new(BrokerProcess(tmp_path_factory.mktemp("broker"), case.settings), TINY)
    assert names(case.measures) <= values.keys()
    assert all(value >= 0 for value in values.values())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSubject]:
    folder = tmp_path_factory.mktemp("cluster")
    settings = {**SETTINGS, "zookeeper.session.timeout.ms": "2000"}
    with (
        coordination_in_memory() as coordination,
        Cluster(folder, settings=settings, new_broker=NEW_BROKERS[MILENA], coordination=coordination) as running,
        ClusterSubject(MILENA, running) as subject,
    ):
        yield subject


@pytest.mark.parametrize("case", selected("on_cluster"))
def test_cases_on_a_cluster_report_their_measures(cluster: ClusterSubject, case: Case) -> None:
    assert case.on_cluster is not None
    cluster.cluster.heal()
    values = case.on_cluster(cluster, TINY)
    assert names(case.measures) <= values.keys()
    assert all(value >= 0 for value in values.values())


@pytest.mark.parametrize("case", selected("of_worker"))
def test_cases_of_workers_report_their_measures(tmp_path: Path, case: Case) -> None:
    check_worker_case(case, MILENA, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES if case.of_worker is not None])
def test_cases_of_workers_measure_the_programs_of_kafka(tmp_path: Path, case: Case) -> None:
    with skip_when_unavailable():
        check_worker_case(case, KAFKA, tmp_path)


def check_worker_case(case: Case, name: str, folder: Path) -> None:
    assert case.of_worker is not None
    values = case.of_worker(name, folder, TINY)
    assert names(case.measures) <= values.keys()
    assert all(value >= 0 for value in values.values())


@pytest.mark.parametrize("case", selected("in_process"))
def test_cases_in_process_report_their_measures(tmp_path: Path, case: Case) -> None:
    assert case.in_process is not None
    values = case.in_process(tmp_path, TINY)
    assert names(case.measures) <= values.keys()
    assert all(value > 0 for value in values.values())


KINDS = ("on_new", "on_running", "on_cluster", "of_worker", "in_process")


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_cases_give_their_function_what_it_takes(case: Case) -> None:
    """Also those that run as soak tests only."""
    (function,) = (found for kind in KINDS if (found := getattr(case, kind)) is not None)
    signature(function).bind(*("", Path(), TINY) if case.of_worker is not None else (None, TINY))


def test_case_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    kinds = [[getattr(case, kind) for kind in KINDS] for case in CASES]
    assert all(functions.count(None) == 4 for functions in kinds)
