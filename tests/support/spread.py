"""How the tests are spread over the worker processes of pytest-xdist (`pytest -n 2`), and how long each may take.

Owns: which tests stay together, which run first, which are slow, and timeouts. The tests of a file stay together, as
they share fixtures; so do files that share an expensive fixture. Long tests that share none are apart. The longest run
first, so that no worker runs one alone at the end.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

# Beginnings of paths: of the tests that share one Spark, of those that share one cluster, and of those that share the
# Java programs' JVMs, a real Kafka and the files of one broker. A second Spark would load and compile the same classes
# again, and its first query of each kind is slow: about 30 s of a processor.
TOGETHER = (
    (
        "tests/spark_jobs/",
        "tests/cluster/test_near_reads.py",
        "tests/cluster/test_spark.py",
        "tests/cluster/test_spark_sink.py",
    ),
    (
        "tests/cluster/test_administration.py",
        "tests/cluster/test_all_killed.py",
        "tests/cluster/test_failures.py",
        "tests/cluster/test_groups.py",
        "tests/cluster/test_other_clients.py",
        "tests/cluster/test_protocol_upgrade.py",
        "tests/cluster/test_transactions.py",
    ),
    (
        "tests/interop/test_admin_",
        "tests/interop/test_command_line_",
        "tests/interop/test_dump_log",
        "tests/interop/test_high_level_consumers.py",
        "tests/interop/test_java_",
        "tests/interop/test_secur",
        "tests/interop/test_streams",
    ),
)
# Files in the folder of a group that do not use what it shares: they can run on other workers.
WITHOUT_SPARK = (
    "tests/spark_jobs/connect/",
    "tests/spark_jobs/mirroring/",
    "tests/spark_jobs/skeleton/test_avro_compatibility.py",
    "tests/spark_jobs/skeleton/test_avro_json.py",
    "tests/spark_jobs/skeleton/test_clients.py",
    "tests/spark_jobs/skeleton/test_database.py",
    "tests/spark_jobs/skeleton/test_errors.py",
    "tests/spark_jobs/skeleton/test_java.py",
    "tests/spark_jobs/skeleton/test_parameters.py",
    "tests/spark_jobs/skeleton/test_pinned_jars.py",
    "tests/spark_jobs/skeleton/test_plots.py",
    "tests/spark_jobs/skeleton/test_repeating.py",
    "tests/spark_jobs/skeleton/test_schemas.py",
    "tests/spark_jobs/skeleton/test_session.py",
    "tests/spark_jobs/skeleton/test_topics.py",
    "tests/spark_jobs/test_compose.py",
    "tests/spark_jobs/test_documentation.py",
    "tests/spark_jobs/test_documented_login.py",
    "tests/spark_jobs/test_file_sink.py",
    "tests/spark_jobs/test_file_source.py",
    "tests/spark_jobs/test_flights.py",
    "tests/spark_jobs/test_flights_chart.py",
    "tests/spark_jobs/test_flights_produce.py",
    "tests/spark_jobs/test_hanging.py",
    "tests/spark_jobs/test_samples.py",
    "tests/spark_jobs/test_schema_registry.py",
)
# Files whose tests share nothing: each goes to a worker by itself.
APART = ("tests/sim/test_guards.py", "tests/sim/test_seeds.py", "tests/sim/test_slow_disks.py")
# From `--durations=0`; each is marked `slow`. A long one that is missing here may run alone at the end. Files that need
# libraries from the network come later, so that there is time to fetch them.
LONGEST_FIRST = (
    "tests/spark_jobs/",
    "tests/cluster/",
    "tests/bench/test_cases.py",
    "tests/storage/log/test_log_crash.py",
    "tests/clients/test_kafka_python.py",
    "tests/clients/test_transactions.py",
    "tests/storage/manager/test_log_moves.py",
    "tests/replay/",
    "tests/interop/",
    "tests/test_launch.py",
    "tests/test_package.py",
    "tests/testing/test_broker.py",
    "tests/docs/test_operations.py",
    "tests/testing/test_releases.py",
    "tests/bench/test_client.py",
    "tests/tools/test_command_line_sessions.py",
    "tests/tools/zookeeper/test_way_out.py",
    "tests/tools/records/test_console.py",
    "tests/tools/zookeeper/test_metadata_copy.py",
    "tests/broker/cluster/test_zookeeper_broker.py",
    "tests/broker/console/test_known_load.py",
    "tests/broker/console/test_page",
    "tests/broker/test_file_descriptors.py",
    "tests/fuzz/test_every_field.py",
    "tests/storage/batches/test_validation_twin.py",
    "tests/storage/disk/test_shortages.py",
)
# Their first test may wait until libraries are fetched, Spark has started or Kafka has.
TIMEOUTS_S = {
    "tests/interop/": 600,
    "tests/spark_jobs/": 600,
    "tests/bench/": 300,
    "tests/cluster/": 240,
    "tests/sim/": 240,
    "tests/protocol/test_declarations.py": 600,
    "tests/protocol/test_stored_declarations.py": 600,
}
SOAK_TIMEOUT_S = 3600


class FilesTogether(LoadScopeScheduling):
    """Gives a worker the next file, or the next files that stay together, when it has nearly finished its last.

    What a test costs here does not grow with the number of tests: xdist's own methods search all of them.
    """

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False
        self._indices: dict[str, int] = {}
        """Of every test, in the collection that all workers share."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file in APART:
            return nodeid
        if file.startswith(WITHOUT_SPARK):
            return file
        return next((group[0] for group in TOGETHER if file.startswith(group)), file)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if not self._indices:
            self._indices = {nodeid: index for index, nodeid in enumerate(self.registered_collections[node])}
        scope, tests = self.workqueue.popitem(last=False)
        self.assigned_work[node][scope] = tests
        node.send_runtest_some([self._indices[nodeid] for nodeid in tests])

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Forget a test that a worker has finished, and give the worker more if it has nearly finished all."""
        nodeid = self.registered_collections[node][item_index]
        scope = self._split_scope(nodeid)
        tests = self.assigned_work[node][scope]
        del tests[nodeid]
        if not tests:
            del self.assigned_work[node][scope]
        self._reschedule(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Give the tests of a worker that has ended to others, and return the one that ended it.

        xdist's own method would have each new worker repeat that test.
        """
        units = self.assigned_work.pop(node)
        if not units:
            return None
        scope = next(iter(units))
        ended_by = next(iter(units[scope]))
        del units[scope][ended_by]
        self.workqueue.update((scope, tests) for scope, tests in units.items() if tests)
        for other in self.assigned_work:
            self._reschedule(other)
        return ended_by


def longest_first(item: pytest.Item) -> int:
    """The key to sort tests by; others keep their order."""
    if item.nodeid.startswith(WITHOUT_SPARK):
        return len(LONGEST_FIRST)
    for place, path in enumerate(LONGEST_FIRST):
        if item.nodeid.startswith(path):
            return place
    return len(LONGEST_FIRST)


def mark(item: pytest.Item) -> None:
    """Mark a test as slow, with a longer timeout than the default unless it has its own."""
    if item.nodeid.startswith(LONGEST_FIRST):
        item.add_marker(pytest.mark.slow)
    if item.get_closest_marker("timeout") is None:
        longer = [seconds for path, seconds in TIMEOUTS_S.items() if item.nodeid.startswith(path)]
        if item.get_closest_marker("soak"):
            longer.append(SOAK_TIMEOUT_S)
        if longer:
            item.add_marker(pytest.mark.timeout(max(longer)))
