"""Options as in Kafka's Java tools, usage errors, and exit status."""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.tools.conftest import RunTool
from tools.base.command_line import BOOTSTRAP_SERVER, CommandLine, StopRequest, UsageError, run_tool

ROOT = Path(__file__).resolve().parents[3]


def line() -> CommandLine:
    line = CommandLine("kafka-example", "Shows how options are read.")
    line.add_option(*BOOTSTRAP_SERVER, value="servers", help_text="Brokers.")
    line.add_option("--partitions", value="count", parse=int, help_text="A number.")
    line.add_option("--property", value="key=value", repeatable=True, help_text="A setting.")
    line.add_option("--consumer.config", value="file", help_text="A file.")
    line.add_option("--codec", value="name", value_is_optional=True, value_if_absent="gzip", help_text="A codec.")
    line.add_flag("--under-replicated-partitions", "A flag.")
    line.add_flag(
        "--unavailable-partitions", "A flag with a description that is too long for one line of the table it is in."
    )
    return line


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["--partitions", "3"], "partitions", 3),
        (["--partitions=3"], "partitions", 3),
        (["--partitions", "-1"], "partitions", -1),
        (["--par", "3"], "partitions", 3),
        (["--under-rep"], "under_replicated_partitions", True),
        (["--unavailable-partitions"], "under_replicated_partitions", False),
        (["--bootstrap-server", "a:1"], "bootstrap_server", "a:1"),
        (["--bootstrap-servers", "a:1"], "bootstrap_server", "a:1"),
        (["--broker-list=a:1"], "bootstrap_server", "a:1"),
        (["--bootstrap", "a:1"], "bootstrap_server", "a:1"),
        (["--property", "a=1", "--property=b=2"], "property", ["a=1", "b=2"]),
        (["--codec"], "property", []),
        (["--codec"], "codec", "gzip"),
        (["--codec", "lz4"], "codec", "lz4"),
        (["--codec", "--partitions=1"], "codec", "gzip"),
        (["--consumer.config", "f"], "consumer_config", "f"),
    ],
)
def test_options_are_parsed(arguments: list[str], name: str, value: object) -> None:
    assert getattr(line().parse(arguments), name) == value


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], ""),
        (["--nosuch"], "nosuch is not a recognized option"),
        (["--nosuch=1"], "nosuch is not a recognized option"),
        (["--partitions"], "Option partitions requires an argument"),
        (["--bootstrap-server"], "Option bootstrap-server requires an argument"),
        (["--partitions", "many"], "Cannot parse argument 'many' of option partitions"),
        (
            ["--partitions=1", "--partitions=2"],
            "Found multiple arguments for option partitions, but you asked for only one",
        ),
    ],
)
def test_invalid_options_are_usage_errors(arguments: list[str], text: str) -> None:
    with pytest.raises(UsageError) as failure:
        line().parse(arguments)
    assert str(failure.value) == text


def test_ambiguous_prefix_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="ambiguous option: --un"):
        line().parse(["--un"])


def test_positional_arguments_are_ignored_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert line().parse(["--partitions", "1", "stray"]).partitions == 1
    assert "stray is ignored" in capsys.readouterr().err


def test_required_and_forbidden_combinations_are_checked() -> None:
    options = line().parse(["--partitions=1", "--codec=lz4"])
    line().require(options, "--partitions")
    line().require_one_of(options, "--codec", ("lz4", "gzip"))
    line().forbid(options, "--partitions", "--unavailable-partitions", "--property")
    line().forbid(options, "--unavailable-partitions", "--partitions")
    with pytest.raises(UsageError, match=r'Missing required argument "\[bootstrap-server\]"'):
        line().require(options, "--partitions", "--bootstrap-server")
    with pytest.raises(UsageError, match=r'Option "\[partitions\]" can\'t be used with option "\[codec\]"'):
        line().forbid(options, "--partitions", "--codec")
    with pytest.raises(UsageError, match="Cannot parse argument 'lz4' of option codec: expected zstd"):
        line().require_one_of(options, "--codec", ("zstd",))


def _fail(line: CommandLine, options: argparse.Namespace) -> int:
    raise UsageError("That makes no sense.")


def _interrupt(line: CommandLine, options: argparse.Namespace) -> int:
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
    return 0


def test_usage_error_is_one_line_and_the_usage_on_stderr(run: RunTool) -> None:
    outcome = run(lambda arguments: run_tool(line(), _fail, arguments), "--partitions=1")
    assert outcome.status == 1
    assert outcome.stdout == ""
    first, second, *table = outcome.stderr.splitlines()
    assert (first, second) == ("That makes no sense.", "Shows how options are read.")
    assert any(row.startswith("--partitions <count>") for row in table)
    assert all(len(row) <= 120 for row in table)


def test_a_command_line_without_options_prints_the_usage_and_fails(run: RunTool) -> None:
    outcome = run(lambda given: run_tool(line(), _fail, given))
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith("Shows how options are read.")


@pytest.mark.parametrize("help_succeeds", [False, True])
def test_help_is_printed_with_examples(run: RunTool, *, help_succeeds: bool) -> None:
    helped = CommandLine("kafka-example", "Shows help.", ["--list"], help_succeeds=help_succeeds)
    outcome = run(lambda given: run_tool(helped, _fail, given), "--help")
    printed, nothing = (outcome.stdout, outcome.stderr) if help_succeeds else (outcome.stderr, outcome.stdout)
    assert (outcome.status, nothing) == (0 if help_succeeds else 1, "")
    assert printed.startswith("Shows help.\n")
    assert printed.endswith("\nExamples:\n  kafka-example --list\n")


def test_a_misspelt_option_names_the_nearest_one() -> None:
    with pytest.raises(UsageError) as failure:
        line().parse(["--partition-s", "1"])
    assert str(failure.value) == "partition-s is not a recognized option; did you mean --partitions?"


def test_on_a_screen_the_error_comes_after_the_usage(run: RunTool, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(given: Sequence[str] | None) -> int:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        return run_tool(line(), _fail, given)

    assert run(fail, "--partitions=1").stderr.endswith("\nThat makes no sense.\n")


def test_version_is_printed(run: RunTool) -> None:
    outcome = run(lambda arguments: run_tool(line(), _fail, arguments), "--version")
    assert (outcome.status, outcome.stdout, outcome.stderr) == (0, "3.9.1 (Commit:f745dfdcee2b9851)\n", "")


def test_sigterm_ends_a_tool_without_a_traceback(run: RunTool) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    outcome = run(lambda arguments: run_tool(line(), _interrupt, arguments), "--partitions=1")
    assert (outcome.status, outcome.stderr) == (130, "")
    assert signal.getsignal(signal.SIGTERM) is handler


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Restore Python's handler of SIGINT: a shell ignores SIGINT in background processes, such as these tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_stop_request_catches_the_first_signal_only() -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with StopRequest() as stop:
        assert not stop.is_made
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.is_made
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_a_signal_that_another_thread_gets_ends_the_wait_of_the_main_thread() -> None:
    """The signal is blocked in the main thread, as if the kernel had chosen the other one."""
    program = """
import os, signal, threading, time
from tools.base.command_line import StopRequest, wait_for_signal
stopped = threading.Event()
with StopRequest(stopped.set):
    thread = threading.Thread(target=lambda: (time.sleep(0.2), os.kill(os.getpid(), signal.SIGTERM)))
    thread.start()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    wait_for_signal(stopped)
print("stopped")
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=30, cwd=ROOT,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "stopped\n"), done.stderr
