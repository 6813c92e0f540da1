"""Names of settings in earlier releases and in books, and what replaced them.

A renamed setting is moved to its new name with a warning; if both are set, the new name wins. For a removed setting the
warning names its replacement. The rest of this module is tables.

Must not know what a setting does.
"""

from collections.abc import Mapping

RENAMED: Mapping[str, str] = {
    "log.delete.delay.ms": "log.segment.delete.delay.ms",
    "log.segment.ms": "log.roll.ms",
    "log.cleaner.enabled": "log.cleaner.enable",
    "unclean.leader.election": "unclean.leader.election.enable",
    "min.isr": "min.insync.replicas",
    "min.insync.replica": "min.insync.replicas",
    "delegation.token.master.key": "delegation.token.secret.key",
}
"""Old name to new name; the value has the same meaning."""

DEPRECATED: Mapping[str, str] = {
    "quota.producer.default": "set a default client quota (producer_byte_rate) instead",
    "quota.consumer.default": "set a default client quota (consumer_byte_rate) instead",
    "log.message.timestamp.difference.max.ms": (
        "use log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms"
    ),
    "offsets.commit.required.acks": "leave it at -1",
}
"""Settings that still work (or are still accepted), and what to do instead."""

IGNORED: Mapping[str, str] = {
    "replica.lag.max.messages": "in-sync replicas depend on replica.lag.time.max.ms alone",
    "controller.message.queue.size": "the controller's queues have no limit",
    "zookeeper.sync.time.ms": "no part of the broker waits for ZooKeeper followers",
}
"""Settings that have had no effect for several releases, and why."""

REMOVED: Mapping[str, str] = {
    "log.retention.hours.per.topic": "retention.ms",
    "log.retention.bytes.per.topic": "retention.bytes",
    "log.segment.bytes.per.topic": "segment.bytes",
}
"""Per-topic settings of the broker's file, and the topic settings that replaced them."""

CLIENT_PREFIXES = ("topic.metadata.refresh",)
"""Prefixes of client settings that are often found in a broker's file."""

TOPIC_RENAMED: Mapping[str, str] = {"log.cleanup.policy": "cleanup.policy"}
"""Old names of topic settings."""

ADDRESSES = (("listeners", "host.name", "port"), ("advertised.listeners", "advertised.host.name", "advertised.port"))
"""Settings of addresses, each with the names of its host and port in earlier releases."""

_OLD_PORT_DEFAULT = "9092"


def is_known(key: str) -> bool:
    """Return whether a setting of an earlier release has this name."""
    return key in RENAMED or any(key in old for _, *old in ADDRESSES) or warning_for(key) is not None


def rename(settings: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the settings under their current names, and a warning for each that had an old one."""
    renamed = dict(settings)
    warnings = _build_listeners(renamed)
    for old, new in RENAMED.items():
        if old in renamed:
            value = renamed.pop(old)
            if new in renamed:
                warnings.append(f"{old} is deprecated and ignored, because {new} is set")
            else:
                renamed[new] = value
                warnings.append(f"{old} is deprecated; use {new}")
    return renamed, warnings


def warning_for(key: str) -> str | None:
    """Return the warning for a setting that is deprecated, ignored or removed, else None."""
    if key in DEPRECATED:
        return f"{key} is deprecated: {DEPRECATED[key]}"
    if key in IGNORED:
        return f"{key} is ignored: {IGNORED[key]}"
    if key in REMOVED:
        return f"{key} was removed and is ignored: set {REMOVED[key]} on the topic with kafka-configs"
    if key.startswith(CLIENT_PREFIXES):
        return f"{key} is ignored: it is a setting of clients"
    return None


def _build_listeners(settings: dict[str, str]) -> list[str]:
    """Replace the host and port settings of old files by listeners, in place; return the warnings."""
    warnings: list[str] = []
    defaults = {"host": settings.get("host.name", ""), "port": settings.get("port", _OLD_PORT_DEFAULT)}
    for new, *old_names in ADDRESSES:
        present = [name for name in old_names if name in settings]
        if not present:
            continue
        values = [settings.pop(name).strip() if name in settings else None for name in old_names]
        if new in settings:
            warnings += [f"{name} is deprecated and ignored, because {new} is set" for name in present]
            continue
        host, port = values[0] or defaults["host"], values[1] or defaults["port"]
        settings[new] = f"PLAINTEXT://{f'[{host}]' if ':' in host else host}:{port}"
        warnings += [f"{name} is deprecated; use {new}={settings[new]}" for name in present]
    return warnings
