"""The console connectors use the standard input and output, whatever file a configuration names."""

import pytest

from spark_jobs.connect.connectors.console import (
    ConsoleSinkConnector,
    ConsoleSinkTask,
    ConsoleSourceConnector,
    ConsoleSourceTask,
)
from tests.spark_jobs.connect.contexts import poll_until, sink_record, start_connector, start_sink, start_source


def test_lines_of_the_standard_input_are_sent(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = tmp_path_factory.mktemp("input") / "typed"
    typed.write_text("one\ntwo\n")
    with typed.open() as standard_input:
        monkeypatch.setattr("sys.stdin", standard_input)
        task = start_source(ConsoleSourceTask, {"topic": "lines", "file": "ignored"})
        records = poll_until(task, 2)
        task.stop()
    assert [record.value for record in records] == ["one", "two"]


def test_values_are_written_to_the_standard_output(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    task = start_sink(ConsoleSinkTask, {"file": "ignored"}, ("topic", 0))
    task.put([sink_record({"a": 1.0})])
    task.flush({("topic", 0): 1})
    task.stop()
    assert capsysbinary.readouterr().out == b"{a=1.0}\n"


def test_nothing_of_the_console_is_exactly_once() -> None:
    assert not ConsoleSourceConnector().exactly_once_support({"topic": "t", "file": "ignored"})


def test_every_task_of_the_sink_may_write() -> None:
    assert len(start_connector(ConsoleSinkConnector, {"file": "ignored"}).task_configs(2)) == 2
