"""kafka-broker-api-versions with a real broker, and its lines for brokers of other versions."""

import re

import pytest

from protocol.api import APIS
from protocol.messages.api_versions import ApiVersion
from tests.support.broker import BrokerProcess
from tests.tools.conftest import RunTool
from tools.admin import broker_api_versions
from tools.admin.broker_api_versions import NEVER_SERVED, descriptions


def test_every_broker_is_printed_with_its_requests(broker: BrokerProcess, run: RunTool) -> None:
    outcome = run(broker_api_versions.main, "--bootstrap-server", broker.bootstrap)
    assert (outcome.status, outcome.stderr) == (0, "")
    first, *apis, last = outcome.stdout.splitlines()
    assert re.fullmatch(r"\S+:\d+ \(id: \d+ rack: null\) -> \(", first)
    assert last == ")"
    assert apis[0] == "\tProduce(0): 0 to 12 [usable: 12],"
    assert [int(re.findall(r"\((\d+)\): ", api)[0]) for api in apis] == sorted({*APIS, *NEVER_SERVED})
    assert all(api.endswith(",") for api in apis[:-1])
    assert not apis[-1].endswith(",")


@pytest.mark.parametrize(
    ("served", "line"),
    [
        (ApiVersion(api_key=0, min_version=3, max_version=3), "Produce(0): 3 [usable: 3]"),
        (ApiVersion(api_key=0, min_version=0, max_version=99), f"Produce(0): 0 to 99 [usable: {APIS[0].versions[-1]}]"),
        (ApiVersion(api_key=0, min_version=90, max_version=99), "Produce(0): 90 to 99 [unusable: node too new]"),
        (ApiVersion(api_key=0, min_version=-2, max_version=-1), "Produce(0): -2 to -1 [unusable: node too old]"),
        (ApiVersion(api_key=999, min_version=0, max_version=1), "UNKNOWN(999): 0 to 1"),
    ],
)
def test_versions_are_compared_with_those_of_the_tool(served: ApiVersion, line: str) -> None:
    lines = list(descriptions([served]))
    assert line in lines
    assert "Fetch(1): UNSUPPORTED" in lines


def test_bootstrap_server_is_required(run: RunTool) -> None:
    outcome = run(broker_api_versions.main)
    assert outcome.status == 1
    assert "bootstrap-server" in outcome.stderr
