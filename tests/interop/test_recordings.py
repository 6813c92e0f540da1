"""The recorded contents of Kafka's segments equal those that Kafka reads now."""

from tests.fixtures.record import decoded_logs
from tests.support.apache_kafka import JavaPrograms, jars
from tests.support.parts import skip_when_unavailable
from tests.support.recorded import DECODED_LOGS, read_lines


def test_kafka_decodes_its_segments_as_recorded(java_programs: JavaPrograms) -> None:
    with skip_when_unavailable():
        jars()
    assert decoded_logs(java_programs) == list(read_lines(DECODED_LOGS))
