"""The request log: one line of JSON for each request, without records and secrets."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from protocol.messages.api_versions import ApiVersionsRequest
from tests.broker.handlers.test_produce_and_fetch import batch_of, produce
from tests.support.in_process import running_broker

TRACE = 5
LOGGER = "kafka.request.logger"


def lines(caplog: pytest.LogCaptureFixture) -> list[Any]:
    texts = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    return [json.loads(text.removeprefix("Completed request:")) for text in texts]


async def test_a_line_has_the_header_the_client_and_the_times(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.ask(ApiVersionsRequest(client_software_name="tool", client_software_version="1.2"))
        assert lines(caplog) == []
        with caplog.at_level(logging.DEBUG, LOGGER):
            await broker.ask(ApiVersionsRequest(client_software_name="tool", client_software_version="1.2"))
    (line,) = lines(caplog)
    assert line["requestHeader"] == {
        "requestApiKey": 18,
        "requestApiVersion": 4,
        "correlationId": 7,
        "clientId": "local",
        "requestApiKeyName": "ApiVersions",
    }
    assert line["connection"] == "127.0.0.1:50000"
    assert line["clientInformation"] == {"softwareName": "tool", "softwareVersion": "1.2"}
    assert (line["principal"], line["listener"]) == ("User:ANONYMOUS", "PLAINTEXT")
    parts = ("requestQueue", "local", "remote", "throttle", "responseQueue", "send")
    assert line["totalTimeMs"] == pytest.approx(sum(line[f"{part}TimeMs"] for part in parts), abs=0.01)
    assert "request" not in line


async def test_trace_shows_the_request_without_records_and_values(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_topic("t")
        with caplog.at_level(TRACE, LOGGER):
            await produce(broker, "t", {0: batch_of(b"secret-payload")})
            resource = AlterConfigsResource(
                resource_type=2,
                resource_name="t",
                configs=[AlterableConfig(name="retention.ms", value="secret-value")],
            )
            await broker.ask(AlterConfigsRequest(resources=[resource], validate_only=False))
    produced, altered = lines(caplog)
    assert "secret" not in caplog.text
    assert produced["request"]["topic_data"][0]["name"] == "t"
    assert produced["request"]["topic_data"][0]["partition_data"][0]["records"].endswith(" bytes")
    assert altered["request"]["resources"][0]["configs"] == [{"name": "retention.ms", "value": "[hidden]"}]
    (row,) = produced["response"]["responses"][0]["partition_responses"]
    assert (row["index"], row["error_code"], row["base_offset"]) == (0, 0, 0)
    assert altered["response"]["responses"][0]["resource_name"] == "t"
