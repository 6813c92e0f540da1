"""kafka-broker-api-versions: prints the requests that each broker serves, with their versions."""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence

from protocol.api import APIS
from protocol.errors import KafkaError, Malformed
from protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from tools.base.command_line import BOOTSTRAP_SERVER_ONLY, CommandLine, run_tool
from tools.client.admin_client import CallTimedOut, raise_for
from tools.client.admin_options import add_admin_options, admin_client

NEVER_SERVED: Mapping[int, str] = {
    55: "DescribeQuorum",
    64: "UnregisterBroker",
    76: "ShareGroupHeartbeat",
    77: "ShareGroupDescribe",
    78: "ShareFetch",
    79: "ShareAcknowledge",
    80: "AddRaftVoter",
    81: "RemoveRaftVoter",
    83: "InitializeShareGroupState",
    84: "ReadShareGroupState",
    85: "WriteShareGroupState",
    86: "DeleteShareGroupState",
    87: "ReadShareGroupStateSummary",
}
"""Requests that Kafka 3.9 defines for KRaft and share groups, by key. No tool here sends them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine("kafka-broker-api-versions", "Print the requests that each broker serves, with their versions.")
    add_admin_options(line, BOOTSTRAP_SERVER_ONLY)
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "--bootstrap-server")
    request = ApiVersionsRequest(client_software_name="milena", client_software_version="tools")
    status = 0
    try:
        with admin_client(options) as admin:
            for broker in sorted(admin.metadata([]).brokers, key=lambda each: each.node_id):
                head = f"{broker.host}:{broker.port} (id: {broker.node_id} rack: {broker.rack or 'null'}) -> "
                try:
                    response = admin.call_once(request, ApiVersionsResponse, broker_id=broker.node_id)
                    raise_for(response.error_code)
                except (OSError, Malformed, KafkaError) as error:
                    print(f"{head}ERROR: {error}")
                    status = 1
                else:
                    print(f"{head}(\n" + ",\n".join(f"\t{each}" for each in descriptions(response.api_keys)) + "\n)")
    except (KafkaError, CallTimedOut) as error:
        print(error, file=sys.stderr)
        return 1
    return status


def descriptions(served: Sequence[ApiVersion]) -> Iterator[str]:
    """Yield a line for each API that the broker or this tool knows, by key, in Kafka's form."""
    by_key = {api.api_key: api for api in served}
    names = {**NEVER_SERVED, **{key: api.name for key, api in APIS.items()}}
    for key in sorted({*by_key, *names}):
        name = f"{names.get(key, 'UNKNOWN')}({key})"
        yield f"{name}: {_versions(key, by_key[key]) if key in by_key else 'UNSUPPORTED'}"


def _versions(key: int, api: ApiVersion) -> str:
    low, high = api.min_version, api.max_version
    text = str(low) if low == high else f"{low} to {high}"
    if key not in APIS:
        return text
    ours = APIS[key].versions
    if high < ours[0]:
        return f"{text} [unusable: node too old]"
    if low > ours[-1]:
        return f"{text} [unusable: node too new]"
    return f"{text} [usable: {min(high, ours[-1])}]"


if __name__ == "__main__":
    raise SystemExit(main())
