"""What a broker sends by `inter.broker.protocol.version` is what Kafka sends by it."""

from config.inter_broker import inter_broker_protocol
from config.versions import RELEASED_VERSIONS
from tests.interop.conftest import RunJava
from tests.support.apache_kafka import VERSION


def test_every_version_of_the_protocol_is_that_of_kafka(run_java: RunJava) -> None:
    kafka = {name: facts for name, *facts in map(str.split, run_java("ProtocolVersions", version=VERSION))}
    assert kafka == {name: _facts(name) for name in RELEASED_VERSIONS}


def _facts(version: str) -> list[str]:
    protocol = inter_broker_protocol(version)
    facts = {
        name: getattr(protocol, name)
        for name in (
            "fetch",
            "list_offsets",
            "offset_for_leader_epoch",
            "write_txn_markers",
            "group_value",
            "offset_value",
            "compares_epochs_by_fetch",
            "has_features",
            "has_topic_ids",
            "has_leader_recovery",
        )
    }
    facts["asks_for_isr"] = protocol.alter_partition is not None
    facts["asks_for_ids"] = protocol.allocate_producer_ids is not None
    return [f"{name}={value}" for name, value in facts.items()]
