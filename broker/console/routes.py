"""The table of the console's JSON resources: paths, parameters, results, and what serves each.

Owns the table. HTTP requests are parsed by it, and the OpenAPI document is derived from it. Must not know an HTTP
library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final, Literal, get_args

from base.dataclass import dataclass
from broker.console import (
    cluster,
    configs,
    figures,
    group_list,
    groups,
    requests,
    schema_browser,
    security,
    topics,
    transactions,
)
from broker.console.changes import acls as acl_changes
from broker.console.changes import configs as config_changes
from broker.console.changes import groups as group_changes
from broker.console.changes import quotas as quota_changes
from broker.console.changes import records as record_changes
from broker.console.changes import topics as topic_changes
from broker.console.changes import users as user_changes
from broker.console.changes.change import Change, Confirmation
from broker.console.connect import connectors
from broker.console.problem import bad_request
from broker.console.records import reads
from broker.security.acls import Operation, ResourceType

Kind = Literal["string", "integer", "boolean"]
INT64_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a path or a query. Without a default it is required."""

    name: str
    kind: Kind
    doc: str
    default: str | int | bool | None = None
    minimum: int = 0
    maximum: int = INT64_MAX
    choices: tuple[str, ...] = ()
    length_max: int = 249
    is_in_path: bool = False

    def parsed(self, text: str | None) -> str | int | bool:
        """Return the value of the parameter. Raises ProblemError that names it."""
        if text is None:
            if self.default is None:
                raise bad_request(f"the parameter {self.name} is missing")
            return self.default
        if self.kind == "integer":
            return self._integer(text)
        if self.kind == "boolean":
            if text not in ("true", "false"):
                raise bad_request(f"{self.name}={text[:40]!r}: expected true or false")
            return text == "true"
        if len(text) > self.length_max:
            raise bad_request(f"{self.name} has {len(text)} characters, expected at most {self.length_max}")
        if self.choices and text not in self.choices:
            raise bad_request(f"{self.name}={text[:40]!r}: expected one of {', '.join(self.choices)}")
        return text

    def _integer(self, text: str) -> int:
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdecimal() and len(digits) < 20 and self.minimum <= int(text) <= self.maximum:
            return int(text)
        raise bad_request(f"{self.name}={text[:40]!r}: expected a number from {self.minimum} to {self.maximum}")


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource below `/api/v1`. `serve(console, **parameters)` returns the object that is sent as JSON.

    With `is_stream` it returns an iterator of lines. `body` is the type of the JSON object in a request, which `serve`
    gets as `body`. Resources that write are served only if `console.write.enable` is set. Those of an optional page
    exist only if a setting has switched the page on.
    """

    method: Literal["GET", "POST"]
    path: str
    serve: Callable[..., Any]
    result: type
    doc: str
    parameters: tuple[Parameter, ...] = ()
    body: type | None = None
    is_stream: bool = False
    is_write: bool = False
    optional_page: str = ""


NAME = Parameter("name", "string", "Name of the topic.", is_in_path=True)
SEARCH = Parameter("search", "string", "Part of the name, in any case.", "")
OFFSET = Parameter("offset", "integer", "How many entries to pass over.", 0, maximum=10_000_000)
LIMIT = Parameter("limit", "integer", "The most entries of the page.", 50, minimum=1, maximum=500)
PARTITION = Parameter("partition", "integer", "One partition; -1: all.", -1, minimum=-1, maximum=(1 << 31) - 1)
ISOLATION = Parameter(
    "isolation",
    "string",
    "Whether records of open and aborted transactions are read.",
    "read_uncommitted",
    choices=("read_uncommitted", "read_committed"),
)
FORM = Parameter("form", "string", "How values are shown.", "auto", choices=("auto", "hex"))
FILTER = Parameter("filter", "string", "A filter, see docs/console.md.", "", length_max=1_000)
RECORD_LIMIT = Parameter("limit", "integer", "The most records.", 100, minimum=1, maximum=500)
CURSOR_SIZE_MAX: Final = 60_000
"""Characters of a cursor. At most half of them are separators, which browsers encode as three bytes each."""
CURSOR = Parameter("cursor", "string", "Cursor of the former page.", "", length_max=CURSOR_SIZE_MAX)
ORDER = Parameter("order", "string", "Order of the list.", "ascending", choices=("ascending", "descending"))


GROUP = Parameter("group", "string", "Id of the group.", is_in_path=True, length_max=1_000)
CONNECTOR = Parameter("connector", "string", "Name of the connector.", is_in_path=True, length_max=1_000)
KIND = Parameter("kind", "string", "What is configured.", is_in_path=True, choices=("topic", "broker"))
ACTION = Parameter("action", "string", "What to do.", is_in_path=True, choices=tuple(connectors.ACTIONS))
TASK = Parameter("task", "integer", "Number of the task.", maximum=connectors.TASK_MAX, is_in_path=True)
RESOURCE_NAME = Parameter("name", "string", "Name of the topic, or id of the broker.", is_in_path=True)


def _names(elements: type[IntEnum]) -> tuple[str, ...]:
    return tuple(each.name for each in elements if each.name not in ("UNKNOWN", "ANY"))


def _time(name: str, doc: str) -> Parameter:
    return Parameter(name, "integer", f"{doc} Milliseconds since 1970; -1: no bound.", -1, minimum=-1)


def _change(path: str, serve: Callable[..., Any], body: type, doc: str, *parameters: Parameter) -> Resource:
    """Return a resource that previews a change, and makes it when its body has the token of the preview."""
    return Resource(
        "POST", path, serve, Change, f"{doc} Without `confirm` it is a preview.", parameters, body, is_write=True
    )


RESOURCES: tuple[Resource, ...] = (
    Resource("GET", "/overview", cluster.overview, cluster.Overview, "The state of the cluster and of its brokers."),
    Resource(
        "GET", "/partitions", cluster.partitions, cluster.Partitions, "The spread of partitions, bad ones, and moves."
    ),
    Resource(
        "GET",
        "/topics",
        topics.topics,
        topics.TopicPage,
        "A page of topics.",
        (
            SEARCH,
            Parameter(
                "sort",
                "string",
                "Column of the order.",
                "name",
                choices=get_args(topics.Sort),
            ),
            ORDER,
            OFFSET,
            LIMIT,
            Parameter("internal", "boolean", "Whether internal topics are listed.", False),
        ),
    ),
    Resource(
        "GET",
        "/topics/{name}",
        topics.topic,
        topics.TopicDetail,
        "One topic with a page of its partitions.",
        (NAME, OFFSET, LIMIT),
    ),
    Resource(
        "GET",
        "/topics/{name}/records",
        reads.records,
        reads.RecordPage,
        "The newest or the oldest records over all partitions.",
        (
            NAME,
            RECORD_LIMIT,
            PARTITION,
            CURSOR,
            ISOLATION,
            FORM,
            Parameter("order", "string", "Which records come first.", "newest", choices=("newest", "oldest")),
            _time("until", "The newest up to this time."),
            _time("since", "The oldest from this time on."),
            Parameter("from_offset", "integer", "The oldest from this offset on.", 0),
        ),
    ),
    Resource(
        "GET",
        "/topics/{name}/partitions/{partition}/records/{offset}",
        reads.record,
        reads.WholeRecord,
        "One record with its whole key, value and headers.",
        (
            NAME,
            Parameter("partition", "integer", "The partition.", maximum=(1 << 31) - 1, is_in_path=True),
            Parameter("offset", "integer", "The offset.", is_in_path=True),
            FORM,
        ),
    ),
    Resource(
        "GET",
        "/topics/{name}/search",
        reads.search,
        reads.Line,
        "Search the records of a topic; the lines come while it runs. Closing the connection cancels it.",
        (
            NAME,
            FILTER,
            PARTITION,
            Parameter("from_offset", "integer", "First offset.", 0),
            Parameter("to_offset", "integer", "End offset, excluded; -1: no bound.", -1, minimum=-1),
            _time("from_time", "Records from this time on."),
            _time("to_time", "Records up to this time."),
            RECORD_LIMIT,
            ISOLATION,
            FORM,
        ),
        is_stream=True,
    ),
    Resource(
        "GET",
        "/topics/{name}/tail",
        reads.tail,
        reads.Line,
        "New records as they arrive. Closing the connection ends it.",
        (NAME, FILTER, PARTITION, ISOLATION, FORM),
        is_stream=True,
    ),
    Resource(
        "GET",
        "/topics/{name}/count",
        reads.count,
        reads.Line,
        "The true number of records by partition: without markers, compacted offsets and aborted transactions.",
        (
            NAME,
            PARTITION,
            Parameter(
                "from_offsets", "string", "Count from these offsets on, as a cursor.", "", length_max=CURSOR_SIZE_MAX
            ),
            ISOLATION,
        ),
        is_stream=True,
    ),
    Resource(
        "GET",
        "/topics/{name}/groups",
        groups.topic_groups,
        groups.TopicGroups,
        "The groups that read a topic, with their lag.",
        (NAME,),
    ),
    Resource(
        "GET",
        "/groups",
        group_list.groups,
        group_list.GroupPage,
        "A page of groups with their lag and status.",
        (
            SEARCH,
            Parameter("sort", "string", "Column of the order.", "group", choices=get_args(group_list.GroupSort)),
            ORDER,
            OFFSET,
            LIMIT,
        ),
    ),
    Resource(
        "GET",
        "/groups/{group}",
        groups.group,
        groups.GroupDetail,
        "One group: members, assignment, and a page of its partitions: offsets, lag in offsets and in time, last hour.",
        (
            GROUP,
            Parameter("sort", "string", "By name, or the largest lag first.", "name", choices=("name", "lag")),
            OFFSET,
            Parameter("limit", "integer", "The most partitions of the page.", 100, minimum=1, maximum=500),
        ),
    ),
    Resource(
        "GET",
        "/rates",
        requests.rates,
        requests.Rates,
        "Rates and latencies of this broker over an hour or a day.",
        (
            Parameter("window", "string", "How far back.", "hour", choices=("hour", "day")),
            Parameter("topic", "string", "Only this topic; empty: the whole broker.", ""),
        ),
    ),
    Resource(
        "GET", "/requests", requests.requests, requests.Requests, "Requests of this broker by kind, and what waits."
    ),
    Resource(
        "GET",
        "/configs/{kind}/{name}",
        configs.configs,
        configs.Configs,
        "The configuration of a topic or a broker, with sources.",
        (KIND, RESOURCE_NAME),
    ),
    _change(
        "/configs/{kind}/{name}",
        config_changes.change_configs,
        config_changes.ConfigChange,
        "Set and remove dynamic settings.",
        KIND,
        RESOURCE_NAME,
    ),
    Resource(
        "GET",
        "/transactions",
        transactions.transactions,
        transactions.Transactions,
        "Transactional ids, open transactions first, and hanging transactions of this broker.",
    ),
    Resource("GET", "/security", security.security, security.Security, "Users, quotas and ACLs."),
    Resource(
        "GET",
        "/security/may",
        security.may,
        security.Verdict,
        "Whether a principal may do something.",
        (
            Parameter("principal", "string", "Such as User:alice."),
            Parameter("host", "string", "Address of its client.", "127.0.0.1"),
            Parameter("operation", "string", "The operation.", choices=_names(Operation)),
            Parameter("resource_type", "string", "Type of the resource.", choices=_names(ResourceType)),
            Parameter("resource", "string", "Name of the resource."),
        ),
    ),
    Resource(
        "POST",
        "/topics/{name}/records",
        record_changes.produce,
        record_changes.Produced,
        "Produce a record.",
        (NAME,),
        body=record_changes.NewRecord,
        is_write=True,
    ),
    Resource(
        "POST",
        "/topics/{name}/resend",
        record_changes.resend,
        record_changes.ResendResult,
        "Produce stored records again, to a topic or to the topic in a header of each.",
        (NAME,),
        body=record_changes.Resend,
        is_write=True,
    ),
    Resource(
        "POST",
        "/groups/{group}/offsets",
        group_changes.reset_offsets,
        group_changes.ResetPreview,
        "Reset the offsets of a group, or show what a reset would set.",
        (GROUP,),
        body=group_changes.OffsetReset,
        is_write=True,
    ),
    Resource("GET", "/figures", figures.figures, figures.Figures, "Rates and latencies of this broker."),
    Resource(
        "GET",
        "/figures/all",
        figures.all_figures,
        figures.AllFigures,
        "Rates and latencies of this broker and of those that console.brokers names.",
    ),
    Resource(
        "GET",
        "/subjects",
        schema_browser.subjects,
        schema_browser.SubjectPage,
        "A page of the subjects of the schema registry.",
        (SEARCH, OFFSET, LIMIT),
        optional_page="schemas",
    ),
    Resource(
        "GET",
        "/subjects/{subject}",
        schema_browser.subject,
        schema_browser.Subject,
        "A subject of the schema registry with its newest versions.",
        (Parameter("subject", "string", "Name of the subject.", is_in_path=True, length_max=1_000),),
        optional_page="schemas",
    ),
    _change("/groups/{group}/delete", group_changes.delete_group, Confirmation, "Delete a group.", GROUP),
    _change(
        "/groups/{group}/offsets/{name}/delete",
        group_changes.delete_group_topic,
        Confirmation,
        "Delete the offsets of one topic from a group.",
        GROUP,
        NAME,
    ),
    _change("/topics", topic_changes.create_topic, topic_changes.NewTopic, "Create a topic."),
    _change(
        "/topics/{name}/partitions",
        topic_changes.grow_topic,
        topic_changes.MorePartitions,
        "Raise the number of partitions of a topic.",
        NAME,
    ),
    _change(
        "/topics/{name}/empty",
        topic_changes.empty_topic,
        topic_changes.Emptying,
        "Delete the records of a topic that exist at the preview.",
        NAME,
    ),
    _change("/topics/{name}/delete", topic_changes.delete_topic, Confirmation, "Delete a topic.", NAME),
    _change("/security/acls", acl_changes.change_acls, acl_changes.AclChange, "Create or delete access rules."),
    _change("/security/users", user_changes.change_user, user_changes.UserChange, "Set or delete a credential."),
    _change("/security/quotas", quota_changes.change_quotas, quota_changes.QuotaChange, "Set and remove quotas."),
    Resource(
        "GET",
        "/connectors",
        connectors.connectors,
        connectors.ConnectorPage,
        "A page of the connectors of a Kafka Connect cluster, those with failures first.",
        (SEARCH, OFFSET, LIMIT),
        optional_page="connect",
    ),
    Resource(
        "GET",
        "/connectors/{connector}",
        connectors.connector,
        connectors.ConnectorDetail,
        "One connector with its tasks and their errors.",
        (CONNECTOR,),
        optional_page="connect",
    ),
    Resource(
        "GET",
        "/connectors/{connector}/offsets",
        connectors.connector_offsets,
        connectors.ConnectorOffsets,
        "A page of the offsets of a connector.",
        (CONNECTOR, OFFSET, LIMIT),
        optional_page="connect",
    ),
    Resource(
        "POST",
        "/connectors/{connector}/{action}",
        connectors.act_on_connector,
        connectors.Done,
        "Restart a connector, alone, with all tasks or what has failed of both, or pause, resume or stop it.",
        (CONNECTOR, ACTION),
        is_write=True,
        optional_page="connect",
    ),
    Resource(
        "POST",
        "/connectors/{connector}/tasks/{task}/restart",
        connectors.restart_connector_task,
        connectors.Done,
        "Restart one task of a connector.",
        (CONNECTOR, TASK),
        is_write=True,
        optional_page="connect",
    ),
)


def parsed(resource: Resource, path: Mapping[str, str], query: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of a request. Raises ProblemError, also for parameters that are not known."""
    names = {one.name for one in resource.parameters if not one.is_in_path}
    for name in query:
        if name not in names:
            expected = ", ".join(sorted(names)) or "none"
            raise bad_request(f"unknown parameter {name[:40]!r}, expected: {expected}")
    return {one.name: one.parsed((path if one.is_in_path else query).get(one.name)) for one in resource.parameters}
