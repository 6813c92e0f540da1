"""The built-in connectors, by their full names: those of Kafka's classes, or of our own.

Owns the names. Modules are imported only when a connector is used. Must not know how plug-ins are loaded, or which
short names they have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

Direction = Literal["source", "sink"]

_ROOM = "spark_jobs.connect.connectors"
CONNECTORS: Final[Mapping[str, tuple[str, Direction]]] = {
    "org.apache.kafka.connect.file.FileStreamSourceConnector": (
        f"{_ROOM}.file_stream:FileStreamSourceConnector",
        "source",
    ),
    "org.apache.kafka.connect.file.FileStreamSinkConnector": (f"{_ROOM}.file_stream:FileStreamSinkConnector", "sink"),
    f"{_ROOM}.console.ConsoleSourceConnector": (f"{_ROOM}.console:ConsoleSourceConnector", "source"),
    f"{_ROOM}.console.ConsoleSinkConnector": (f"{_ROOM}.console:ConsoleSinkConnector", "sink"),
    f"{_ROOM}.heartbeat.HeartbeatSourceConnector": (f"{_ROOM}.heartbeat:HeartbeatSourceConnector", "source"),
    f"{_ROOM}.http_source.HttpSourceConnector": (f"{_ROOM}.http_source:HttpSourceConnector", "source"),
    f"{_ROOM}.webhook.WebhookSourceConnector": (f"{_ROOM}.webhook:WebhookSourceConnector", "source"),
    f"{_ROOM}.syslog.SyslogSourceConnector": (f"{_ROOM}.syslog:SyslogSourceConnector", "source"),
    f"{_ROOM}.drop_folder.DropFolderSourceConnector": (f"{_ROOM}.drop_folder:DropFolderSourceConnector", "source"),
    "io.confluent.connect.jdbc.JdbcSourceConnector": (f"{_ROOM}.spark_jdbc_source:JdbcSourceConnector", "source"),
    "io.confluent.connect.jdbc.JdbcSinkConnector": (f"{_ROOM}.spark_jdbc_sink:JdbcSinkConnector", "sink"),
    "io.confluent.connect.elasticsearch.ElasticsearchSinkConnector": (
        f"{_ROOM}.spark_elasticsearch:ElasticsearchSinkConnector",
        "sink",
    ),
    "io.confluent.connect.hdfs.HdfsSinkConnector": (f"{_ROOM}.spark_lake:HdfsSinkConnector", "sink"),
    **{
        f"org.apache.kafka.connect.mirror.{name}": (f"spark_jobs.connect.mirror.{module}:{name}", "source")
        for name, module in (
            ("MirrorSourceConnector", "source"),
            ("MirrorCheckpointConnector", "checkpoint"),
            ("MirrorHeartbeatConnector", "heartbeat"),
        )
    },
}
"""Module and class of each connector, and its direction."""
