"""The shipped alerts and dashboards: well formed, and every metric that they use is exported."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from spark_jobs.audit import AUDIT_COUNTERS
from spark_jobs.skeleton.metrics import JobMetrics
from spark_jobs.skeleton.progress import Batch
from tests.broker.handlers.test_produce_and_fetch import batch_of, produce
from tests.monitoring.promql import PromQLError, Selector, selectors
from tests.support.in_process import running_broker
from tools.monitoring.lag import metrics_text
from tools.monitoring.lag_reader import ClusterLag, PartitionLag, PartitionState
from tools.monitoring.lag_windows import Status
from tools.monitoring.monitor_probe import Probe

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "monitoring" / "alerts.yml"
DASHBOARDS = sorted((ROOT / "monitoring" / "grafana").glob("*.json"))
DURATION = re.compile(r"\d+[smhd]")
OF_PROMETHEUS = {"instance", "job"}
TEMPLATE_FUNCTIONS = {"humanize", "humanize1024", "humanizePercentage", "humanizeDuration"}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def expressions(board: dict[str, Any]) -> Iterator[str]:
    for panel in board["panels"]:
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            yield target["expr"]


def all_expressions() -> list[str]:
    found = [rule["expr"] for rule in rules()]
    for path in DASHBOARDS:
        found += expressions(json.loads(path.read_text()))
    return found


@pytest.fixture
async def exported(tmp_path: Path) -> dict[str, set[str]]:
    """The labels of every metric that a broker, kafka-lag and kafka-monitor export, by name."""
    async with running_broker(tmp_path, {"metrics.http.listener": "127.0.0.1:0"}) as broker:
        await broker.create_topic("t")
        await produce(broker, "t", {0: batch_of(b"x")})
        url = f"http://127.0.0.1:{broker.metrics_port}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            texts = [await response.text()]
    lag = PartitionLag(1, 2, 1, 5, Status.OK, 1.0, ())
    state = PartitionState(0, (0,), (0,), 0, 2)
    texts.append(metrics_text({"c": ClusterLag(0, 1, {("t", 0): state}, {"g": {("t", 0): lag}}, {"g": 1})}))
    probe = Probe(1.0)
    probe.sent(0, 1, 0.0, 0.0, is_acknowledged=True)
    probe.received(0, 1, 0.0, 0.1)
    texts += [probe_text(probe), audit_text()]
    found: dict[str, set[str]] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def probe_text(probe: Probe) -> str:
    from broker.metrics.prometheus import pieces
    from broker.metrics.registry import Registry

    return "".join(pieces(Registry(probe.metrics(), lambda: 0.0), with_partitions=True, is_open_metrics=False))


def audit_text() -> str:
    """What the job audit serves with --metrics."""
    counters = dict.fromkeys(AUDIT_COUNTERS, 1.0)
    metrics = JobMetrics("audit", ("127.0.0.1", 0))
    try:
        metrics.on_batch(
            Batch("audit", 0, records=1, duration_ms=1, lag=0, state_rows=0, late=0, malformed=0, counters=counters)
        )
        return generate_latest(metrics.registry).decode()
    finally:
        metrics.close()


async def test_every_metric_and_label_in_use_is_exported(exported: dict[str, set[str]]) -> None:
    for expression in all_expressions():
        for metric, labels in selectors(expression):
            assert metric in exported, (metric, expression)
            assert labels <= exported[metric] | OF_PROMETHEUS, (metric, labels, expression)


def test_alerts_are_complete() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) == 33
    for rule in rules():
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["hint"]
        assert DURATION.fullmatch(rule.get("for", "1m"))
        for text in rule["annotations"].values():
            for template in re.findall(r"\{\{(.*?)\}\}", text):
                value, _, function = (part.strip() for part in template.partition("|"))
                assert re.fullmatch(r"\$value|\$labels\.\w+", value), template
                assert not function or function in TEMPLATE_FUNCTIONS, template
    assert not any("fetch" in rule["expr"].lower() for rule in rules())


def test_swap_in_use_fires_after_5_minutes() -> None:
    (rule,) = (rule for rule in rules() if rule["alert"] == "HostSwapInUse")
    assert rule["expr"].endswith(" > 0")
    assert rule["for"] == "5m"


def test_every_alert_is_described() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    assert [rule["alert"] for rule in rules() if f"`{rule['alert']}`" not in page] == []


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_well_formed(path: Path) -> None:
    board = json.loads(path.read_text())
    assert board["uid"]
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    variables = {variable["name"] for variable in board["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", path.read_text())) - {"__all"} <= variables
    places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
    assert len(places) == len(set(places))


def test_dashboards_have_different_names() -> None:
    boards = [json.loads(path.read_text()) for path in DASHBOARDS]
    assert len({board["uid"] for board in boards}) == len({board["title"] for board in boards}) == len(boards) == 3


@pytest.mark.parametrize(
    "expression",
    [
        "sum(a",
        "rate(a)",
        "rate(a[5m]",
        "a[5m]",
        "sum(a[5m])",
        "a > ",
        "a b",
        'a{x="1"',
        "a{x=1}",
        "unknown_function(a)",
        "sum by x (a)",
        "a and group_left() b",
        "rate(sum(a)[5m])",
        'a{x=~"("}',
    ],
)
def test_the_check_finds_errors(expression: str) -> None:
    with pytest.raises((PromQLError, re.error)):
        selectors(expression)


def test_the_check_finds_selectors() -> None:
    expression = 'sum by (x) (rate(a_total{x="1",y=~"$z"}[5m])) / on(x) group_left() (max(b) - 3.5) > bool 1'
    assert selectors(expression) == [Selector("a_total", frozenset({"x", "y"})), Selector("b", frozenset())]
