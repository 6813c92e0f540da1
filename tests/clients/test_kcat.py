"""kcat: librdkafka from a shell. A Debian package; `apt-get install kcat` gets it."""

import shutil
import subprocess

import pytest

from tests.support.broker import BrokerProcess

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="no kcat here: apt-get install kcat")


def kcat(broker: BrokerProcess, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["kcat", "-b", broker.bootstrap, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_and_consume(broker: BrokerProcess, topic: str, codec: str) -> None:
    lines = [f"k{number}:v{number}" for number in range(50)]
    kcat(broker, "-P", "-t", topic, "-K", ":", "-p", "0", "-z", codec, stdin="\n".join(lines) + "\n")
    out = kcat(broker, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%o %k:%s\n")
    assert out.splitlines() == [f"{number} {line}" for number, line in enumerate(lines)]


def test_metadata_names_the_internal_topics(broker: BrokerProcess, topic: str, group: str) -> None:
    kcat(broker, "-P", "-t", topic, stdin="one\n")
    kcat(broker, "-G", group, "-o", "beginning", "-c", "1", "-q", "-X", "auto.offset.reset=earliest", topic)
    out = kcat(broker, "-L")
    assert f'topic "{topic}" with 4 partitions' in out
    assert 'topic "__consumer_offsets" with 50 partitions' in out


def test_offsets_are_queried_by_time(broker: BrokerProcess, topic: str) -> None:
    kcat(broker, "-P", "-t", topic, "-p", "1", stdin="one\ntwo\n")
    assert kcat(broker, "-Q", "-t", f"{topic}:1:-1").split() == [topic, "[1]", "offset", "2"]
    assert kcat(broker, "-Q", "-t", f"{topic}:1:-2").split() == [topic, "[1]", "offset", "0"]
