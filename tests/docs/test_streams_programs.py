"""docs/pipelines.md shows lines of the Kafka Streams programs and of the jobs beside them as they are."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.broker import ROOT

PAGE = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("## Kafka Streams programs") : PAGE.index("## Reprocessing")]
PARTS = re.findall(r"^### [^:\n]+: `(\w+)\.java`, ([^\n]+)\n(.*?)(?=^### )", SECTION, re.MULTILINE | re.DOTALL)
RESULT = re.compile(r"^\| `[^`]+`, `[^`]+` \| `([^`]+)` \| `([^`]+)` \|$", re.MULTILINE)


def source_lines(*paths: str) -> set[str]:
    return {line.strip() for path in paths for line in (ROOT / path).read_text(encoding="utf-8").splitlines()}


def shown_lines(language: str, text: str) -> set[str]:
    blocks = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    return {line.strip() for block in blocks for line in block.splitlines()}


@pytest.mark.parametrize(("program", "jobs", "text"), PARTS, ids=[part[0] for part in PARTS])
def test_the_lines_that_are_shown_are_those_of_program_and_job(program: str, jobs: str, text: str) -> None:
    java = f"tests/interop/java/streams/{program}.java"
    assert shown_lines("java", text) <= source_lines(java)
    assert shown_lines("python", text) <= source_lines(
        *(f"spark_jobs/{job}.py" for job in re.findall(r"`(\w+)`", jobs))
    )


def test_every_program_is_shown() -> None:
    folder = ROOT / "tests" / "interop" / "java" / "streams"
    own = {"StreamsHost", "WordsAndPairs"}
    assert {part[0] for part in PARTS} == {path.stem for path in folder.iterdir()} - own


def test_both_results_are_equal() -> None:
    """Spark's may have more fields."""
    results = RESULT.findall(SECTION)
    assert len(results) == 8
    for of_streams, of_spark in results:
        if of_streams.startswith("{"):
            assert json.loads(of_streams).items() <= json.loads(of_spark).items()
        else:
            assert of_streams == of_spark
