"""Writes docs/configuration.md from the tables: `python -m config.documentation > docs/configuration.md`.

A test compares the page with what this module makes of the tables today.

Owns the page's form. Must not know any setting.
"""

from collections.abc import Iterable, Iterator

from config.broker_properties import BROKER_PROPERTIES, RELEASED_VERSION
from config.definition import Property, UpdateMode, Visibility, text_of
from config.old_names import DEPRECATED, IGNORED, REMOVED, RENAMED
from config.topic_properties import BROKER_DEFAULTS, TOPIC_PROPERTIES

_HEAD = """\
# Configuration

<!-- Made by `python -m config.documentation`; change the tables in config/, not this page. -->

A broker reads a Java `.properties` file; `--override key=value` on the command line beats the file. A wrong value stops
the start with one line that names the key, the value and what was expected; every wrong key is named in one go. An
unknown key costs a warning, which names a known key that is spelled much like it.

Numbers carry no unit: it is in the name (`.ms`, `.bytes`, `.minutes`). A list is separated by commas. The value of a
password never appears in a log or an answer. A value may refer to the environment or to another file once
`config.providers` names a provider: `${env:NAME}`, `${file:/path/secrets.properties:key}`, `${directory:/path:file}`.

A value comes from the first of: the topic's override (topics), the dynamic value of this broker, the dynamic value for
all brokers, the file, the default. `listener.name.<listener>.<key>` beats `<key>` for that listener.

Every setting of Kafka 3.9 is known and checked. The tables mark those that have no effect, with the reason; the broker
logs a warning at its start for each of them that the file sets. A setting that asks for a part that is missing
([not yet](not-yet.md)), such as a listener with TLS or an authorizer, stops the start.

One broker cannot meet settings that ask for several replicas, such as `offsets.topic.replication.factor=3` or
`min.insync.replicas=2`. It warns at its start and names what to set. When an internal topic cannot be created, the log
says why, at most once a minute.
"""

_UPDATE = {
    UpdateMode.READ_ONLY: "restart",
    UpdateMode.CLUSTER_WIDE: "cluster",
    UpdateMode.PER_BROKER: "broker",
}


def page() -> str:
    """The whole page."""
    return "\n".join((_HEAD, *_broker_section(), "", *_topic_section(), "", *_old_name_section(), ""))


def _broker_section() -> Iterator[str]:
    yield "## Settings of a broker"
    yield ""
    yield "The update column says how a value changes: with a restart only, or while running, for the whole cluster or"
    yield "for one broker. A column that is empty means no value, or any."
    yield ""
    yield "| Name | Type | Default | Values | Update | Meaning |"
    yield "|---|---|---|---|---|---|"
    for row in _sorted(BROKER_PROPERTIES.values()):
        if row.visibility is not Visibility.INTERNAL:
            yield _table_line(*_cells(row), _UPDATE[row.update_mode], _meaning(row))


def _topic_section() -> Iterator[str]:
    yield "## Settings of a topic"
    yield ""
    yield "All of them change while brokers run. The default is the value of the broker's settings named in the last"
    yield "column, the first that has one; shown is what that gives when the broker's are left alone."
    yield ""
    yield "| Name | Type | Default | Values | Meaning | Broker settings behind it |"
    yield "|---|---|---|---|---|---|"
    for row in _sorted(TOPIC_PROPERTIES.values()):
        behind = ", ".join(f"`{default.property.name}`" for default in BROKER_DEFAULTS.get(row, ()))
        yield _table_line(*_cells(row), _meaning(row), behind)


def _old_name_section() -> Iterator[str]:
    yield "## Old names"
    yield ""
    yield "Accepted with a warning; a new name beats the old one."
    yield ""
    yield "| Old | What happens |"
    yield "|---|---|"
    yield _table_line("`port`, `host.name`", "become `listeners`")
    yield _table_line("`advertised.port`, `advertised.host.name`", "become `advertised.listeners`")
    for old, new in RENAMED.items():
        yield _table_line(f"`{old}`", f"is `{new}`")
    for old, advice in DEPRECATED.items():
        yield _table_line(f"`{old}`", f"deprecated: {advice}")
    for old, reason in IGNORED.items():
        yield _table_line(f"`{old}`", f"ignored: {reason}")
    for old, replacement in REMOVED.items():
        yield _table_line(f"`{old}`", f"removed: set `{replacement}` on the topic")


def _sorted(rows: Iterable[Property[object]]) -> list[Property[object]]:
    return sorted(rows, key=lambda row: row.name)


def _cells(row: Property[object]) -> tuple[str, str, str, str]:
    default = text_of(row.default)
    shown = "" if default is None else f"`{default}`" if default else "empty"
    values = "a release of Kafka" if row.validator is RELEASED_VERSION else row.valid_values
    return f"`{row.name}`", row.type.name.lower(), shown, values


def _meaning(row: Property[object]) -> str:
    if row.no_effect is None:
        return row.doc
    return f"{row.doc} **No effect**: {row.no_effect.value.replace('docs/not-yet.md', '[not yet](not-yet.md)')}."


def _table_line(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


if __name__ == "__main__":
    print(page(), end="")
