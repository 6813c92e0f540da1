"""The tables and files of results."""

import json
from pathlib import Path

from bench import plot, report
from bench.measures import Better, Measure, Row, times

ROWS = [
    Row("a", "first case", Measure("rate", "requests/s", Better.HIGHER, times(2)), [2100, 1900, 2000], [1000], 0.3),
    Row("a", "first case", Measure("CPU", "µs/request", Better.LOWER, times(0.5), 1), [9.96], [10], 0.3),
    Row("b", "second case", Measure("p99", "µs", Better.LOWER), [5], [], 0.97),
]


def test_plain_table_aligns_its_columns() -> None:
    assert report.plain_table(ROWS).splitlines() == [
        "case           measure           Milena               Kafka  ratio   target",
        "first case     rate, requests/s  2,000 [1,900-2,100]  1,000  2.00 x  ≥ 2 x    met",
        "               CPU, µs/request   10.0                 10.0   1.00 x  ≤ 0.5 x  MISSED",
        "second case *  p99, µs           5                    -",
    ]


def test_markdown_table_has_a_row_for_each_measure() -> None:
    lines = report.markdown_table(ROWS).splitlines()
    assert lines[:3] == [
        "| case | measure | Milena | Kafka | ratio | target |  |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| first case | rate, requests/s | 2,000 [1,900-2,100] | 1,000 | 2.00 x | ≥ 2 x | met |",
    ]


def test_json_keeps_every_round(tmp_path: Path) -> None:
    report.write_json(ROWS, {"kafka": "3.9.1"}, tmp_path / "results.json")
    stored = json.loads((tmp_path / "results.json").read_text())
    assert stored["kafka"] == "3.9.1"
    assert [(entry["measure"], entry["milena"], entry["met"]) for entry in stored["results"]] == [
        ("rate", [2100, 1900, 2000], True),
        ("CPU", [9.96], False),
        ("p99", [5], None),
    ]


def test_picture_is_a_png(tmp_path: Path) -> None:
    plot.draw(ROWS, tmp_path / "results.png")
    assert (tmp_path / "results.png").read_bytes().startswith(b"\x89PNG")
