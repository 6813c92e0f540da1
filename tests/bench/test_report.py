"""The tables and files of results."""

import json
from pathlib import Path

from bench import plot, report
from bench.measures import Better, Measure, Row, times

ROWS = [
    Row(
        "a",
        "first case",
        Measure("rate", "requests/s", Better.HIGHER, times(2)),
        {"milena": [2100, 1900, 2000], "kafka-3.9": [1000]},
        0.3,
    ),
    Row(
        "a",
        "first case",
        Measure("CPU", "µs/request", Better.LOWER, times(0.5), 1),
        {"milena": [9.96], "kafka-3.9": [10]},
        0.3,
    ),
    Row("b", "second case", Measure("p99", "µs", Better.LOWER), {"milena": [5]}, 0.97),
]


def test_plain_table_aligns_its_columns() -> None:
    assert report.plain_table(ROWS).splitlines() == [
        "case           measure           Milena               Kafka 3.9  ratio   target",
        "first case     rate, requests/s  2,000 [1,900-2,100]  1,000      2.00 x  ≥ 2 x    met",
        "               CPU, µs/request   10.0                 10.0       1.00 x  ≤ 0.5 x  MISSED",
        "second case *  p99, µs           5                    -",
    ]


def test_table_names_the_best_peer_and_the_ratio_of_each_to_kafka() -> None:
    values = {"milena": [5.0], "kafka-3.9": [10.0], "kafka-4.1": [8.0], "kfake": []}
    latency = Row("a", "case", Measure("p50", "µs", Better.LOWER), values, 0.1)
    rate = Row("a", "case", Measure("rate", "requests/s", Better.HIGHER), values, 0.1)
    assert report.plain_table([latency, rate]).splitlines() == [
        "case  measure           Milena  Kafka 3.9  ratio   Kafka 4.1  kfake  best peer         target",
        "case  p50, µs           5       10         0.50 x  8 0.80 x   -      Kafka 4.1 0.80 x",
        "      rate, requests/s  5       10         0.50 x  8 0.80 x   -      Kafka 3.9 1.00 x",
    ]


def test_ratios_refer_to_the_version_before_in_a_run_without_kafka() -> None:
    values = {"milena": [5.0], "milena-interpreted": [11.0], "milena-before": [10.0]}
    latency = Row("a", "case", Measure("p50", "µs", Better.LOWER, times(0.5)), values, 0.1)
    assert latency.is_met is None
    assert report.plain_table([latency]).splitlines() == [
        "case  measure  Milena  Milena, before  ratio   Milena, interpreted  best peer  target",
        "case  p50, µs  5       10              0.50 x  11 1.10 x            -          ≤ 0.5 x",
    ]


def test_markdown_table_has_a_row_for_each_measure() -> None:
    lines = report.markdown_table(ROWS).splitlines()
    assert lines[:3] == [
        "| case | measure | Milena | Kafka 3.9 | ratio | target |  |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| first case | rate, requests/s | 2,000 [1,900-2,100] | 1,000 | 2.00 x | ≥ 2 x | met |",
    ]


def test_json_keeps_every_round(tmp_path: Path) -> None:
    report.write_json(ROWS, {"kafka": "3.9.1"}, tmp_path / "results.json")
    stored = json.loads((tmp_path / "results.json").read_text())
    assert stored["kafka"] == "3.9.1"
    assert [(entry["measure"], entry["values"]["milena"], entry["met"]) for entry in stored["results"]] == [
        ("rate", [2100, 1900, 2000], True),
        ("CPU", [9.96], False),
        ("p99", [5], None),
    ]


def test_picture_is_a_png(tmp_path: Path) -> None:
    plot.draw(ROWS, tmp_path / "results.png")
    assert (tmp_path / "results.png").read_bytes().startswith(b"\x89PNG")
