"""Sessions of command lines with the output of Kafka's tools: `tests/fixtures/command-lines/*.txt`.

Owns: the format of the files, the state of a broker that a session needs, and which parts of an output differ from run
to run and are masked. Must not know: how a tool runs, and which broker serves.

A file has one entry per line; its first characters say what it is:

    # a heading
    % file plan.json {"version": 1}      an action before the next command line: see `ACTIONS`
    $ kafka-topics.sh --list ...         a command line as a shell reads it; its input is that of a `printf TEXT |`
    | orders                             a line on stdout, masked
    ! Error: ...                         a line on stderr, masked, without log lines
    = 1                                  the exit status, if it is not 0
    ? tool: the reason                   why Milena's tool prints something else
    ? broker: the reason                 why Kafka's tool prints something else with Milena

`localhost:9092` stands for the broker's address. `python -m tests.fixtures.record command-lines` replaces the lines
that begin with `|`, `!` and `=` and keeps the others.
"""

from __future__ import annotations

import codecs
import difflib
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.recorded import FIXTURES

FOLDER = FIXTURES / "command-lines"
ADDRESS = "localhost:9092"
BROKER_SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
"""What a broker has for a session, beside its address and folder."""
JOIN_TIMEOUT_S = 30.0


class Printed(NamedTuple):
    """What a command line did, masked."""

    status: int
    stdout: tuple[str, ...]
    stderr: tuple[str, ...]


class Command(NamedTuple):
    """One command line of a session."""

    line: str
    name: str
    """The tool, without `.sh`."""
    arguments: tuple[str, ...]
    stdin: bytes


class Entry(NamedTuple):
    """A command line, what comes before it in the file, and what was recorded."""

    before: tuple[str, ...]
    """Headings and blank lines."""
    actions: tuple[str, ...]
    command: Command
    recorded: Printed
    reasons: Mapping[str, str]
    """Why an output differs from the recorded one: by `tool` or `broker`."""


class Outcome(Protocol):
    """The exit status and output of a tool."""

    @property
    def status(self) -> int: ...
    @property
    def stdout(self) -> str: ...
    @property
    def stderr(self) -> str: ...


RunTool = Callable[[Command, Sequence[str]], Outcome]
"""Runs the tool of a command line with these arguments."""


def names() -> list[str]:
    """Return the names of all sessions."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def read(name: str) -> list[Entry]:
    """Return the entries of a session."""
    lines = (FOLDER / f"{name}.txt").read_text().splitlines()
    starts = [index for index, line in enumerate(lines) if line.startswith("$ ")]
    entries = []
    previous_end = 0
    for start, following in zip(starts, [*starts[1:], len(lines)], strict=True):
        before = lines[previous_end:start]
        end = start + 1
        while end < following and lines[end][:1] in tuple("|!=?"):
            end += 1
        entries.append(_entry(before, lines[start], lines[start + 1 : end]))
        previous_end = end
    return entries


def _entry(before: Sequence[str], line: str, results: Sequence[str]) -> Entry:
    found: dict[str, list[str]] = {mark: [text[2:] for text in results if text[0] == mark] for mark in "|!=?"}
    return Entry(
        tuple(text for text in before if not text.startswith("%")),
        tuple(text[2:] for text in before if text.startswith("%")),
        parse_command(line[2:]),
        Printed(int(found["="][0]) if found["="] else 0, tuple(found["|"]), tuple(found["!"])),
        dict(text.split(": ", 1) for text in found["?"]),
    )


def parse_command(line: str) -> Command:
    """Return the parts of a command line. Its input is the text of a `printf` before it."""
    tokens = shlex.split(line)
    stdin = b""
    if "|" in tokens:
        before, tokens = tokens[: tokens.index("|")], tokens[tokens.index("|") + 1 :]
        printf, text = before
        assert printf == "printf", line
        stdin = codecs.decode(text, "unicode_escape").encode()
    return Command(line, tokens[0].removesuffix(".sh"), tuple(tokens[1:]), stdin)


def write(name: str, entries: Sequence[Entry], printed: Sequence[Printed]) -> None:
    """Replace the recorded outputs of a session."""
    lines: list[str] = []
    for entry, result in zip(entries, printed, strict=True):
        lines += [*entry.before, *(f"% {action}" for action in entry.actions), f"$ {entry.command.line}"]
        lines += [f"| {text}" for text in result.stdout] + [f"! {text}" for text in result.stderr]
        lines += [f"= {result.status}"] if result.status else []
        lines += [f"? {who}: {why}" for who, why in entry.reasons.items()]
    (FOLDER / f"{name}.txt").write_text("\n".join(lines) + "\n")


def play(
    entries: Sequence[Entry], bootstrap: str, folder: Path, log_dir: Path, run: RunTool, *, settle_s: float = 0.0
) -> Iterator[Printed]:
    """Run the command lines of a session and yield what each prints.

    Args:
        folder: the working folder of the tools, where actions create files.
        log_dir: the log directory of the broker, for the mask.
        settle_s: the pause before each command line: Kafka's broker applies changes some time after it has responded.
    """
    with Stage(bootstrap, folder) as stage:
        for entry in entries:
            for action in entry.actions:
                stage.perform(action)
            if settle_s:
                time.sleep(settle_s)
            arguments = [argument.replace(ADDRESS, bootstrap) for argument in entry.command.arguments]
            outcome = run(entry.command, arguments)
            texts = [
                mask(text.replace(bootstrap, ADDRESS).replace(str(log_dir), "DATA").replace(str(folder), "FOLDER"))
                for text in (outcome.stdout, outcome.stderr)
            ]
            if entry.command.name in TIMED:
                texts = list(map(mask_measurements, texts))
            texts = [without_purpose(text, entry.command.arguments) for text in texts]
            yield Printed(outcome.status, lines_of(texts[0]), lines_of(texts[1]))


TIMED = frozenset({"kafka-producer-perf-test", "kafka-consumer-perf-test", "kafka-e2e-latency"})
"""Tools whose numbers are measurements."""
_USAGE = "<usage>\n"
_MASKS: Sequence[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = (
    # A tool logs with its logger's name at the end, and an error with its stack.
    (re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\] .*\n", re.MULTILINE), ""),
    (
        re.compile(r'^(?:Exception in thread "main" )?(?:[a-z]\w*\.)+[A-Z][\w$]*: (.*)\n(?=\tat )', re.MULTILINE),
        r"\1\n",
    ),
    (re.compile(r"^(\tat |\t\.\.\. |Caused by: ).*\n", re.MULTILINE), ""),
    (re.compile(r"^\tSuppressed: .*\n", re.MULTILINE), ""),
    (re.compile(r"^((?:.*: )?(.+)\n)\2\n", re.MULTILINE), r"\1"),
    (re.compile(r"^requirement failed: ", re.MULTILINE), ""),
    (re.compile(r"^(3\.9\.1) \(Commit:[0-9a-f]{16}\)$", re.MULTILINE), r"\1"),
    # The order of a hash map on the broker or in the tool.
    (re.compile(r"^ *\t(\(principal=.*\n)", re.MULTILINE), r"\1"),
    (
        re.compile(r"^(\(principal=.*\n){2,}", re.MULTILINE),
        lambda lines: "".join(sorted(lines[0].splitlines(keepends=True))),
    ),
    (
        re.compile(r"^(Current ACLs for resource .*\n(\(.*\n|\s*\n)*){2,}", re.MULTILINE),
        lambda lists: _sorted_lists(lists[0]),
    ),
    (re.compile(r"(?<=only supports operations )(.*)"), lambda names: ", ".join(sorted(names[0].split(", ")))),
    (
        re.compile(r"^(Quota configs for .* are )(.*)$", re.MULTILINE),
        lambda line: line[1] + ", ".join(sorted(line[2].split(", "))),
    ),
    (
        re.compile(r"^(Quota configs for .*\n){2,}", re.MULTILINE),
        lambda lines: "".join(sorted(lines[0].splitlines(keepends=True))),
    ),
    (re.compile(r"^ *\([a-z]+(\.[\w$]+)+\)\n", re.MULTILINE), ""),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"(TopicId: |Cluster ID: |clusterId=)[\w-]{22}"), r"\1ID"),
    (re.compile(r"^[\w-]{22}$", re.MULTILINE), "ID"),
    (re.compile(r"\b1[78]\d{11}\b"), "TIME"),
    (re.compile(r"(\tTIME +\t)\d+ *(?=\t)"), r"\1DURATION"),
    (re.compile(r'(?<="avg_throughput":)[\d.]+'), "RATE"),
    # Milena's performance tools add how busy they were.
    (re.compile(r"^This client used .*\n", re.MULTILINE), ""),
    (re.compile(r"\bperf-consumer-\d+|\bconsole-consumer-\d+"), "GROUP"),
    # Kafka 3.9.1 prints two tables without line breaks: their cells are compared. Tests of Milena's tool see the rows.
    (
        re.compile(r"^(GROUP +TOPIC +PARTITION +NEW-OFFSET|TOPIC +PARTITION +STATUS)\s(.*\n)*", re.MULTILINE),
        lambda table: " ".join(table[0].split()) + "\n",
    ),
    # The help is a table of options below an error or the tool's purpose, or a text of argparse4j.
    (re.compile(r"^Option(?: \(\* = required\))? +Description *\n(.*\n)*", re.MULTILINE), _USAGE),
    (re.compile(r"^usage: (.*\n)*", re.MULTILINE | re.IGNORECASE), _USAGE),
)


def _sorted_lists(text: str) -> str:
    return "".join(sorted(re.findall(r"Current .*\n(?:(?!Current ).*\n)*", text)))


def mask(text: str) -> str:
    """Return a text without log lines, and with names for ids, times and the help."""
    if text and not text.endswith("\n"):
        text += "\n"
    for pattern, replacement in _MASKS:
        text = pattern.sub(replacement, text)
    return text


def without_purpose(text: str, arguments: Sequence[str]) -> str:
    """Return the mask of a help text alone if the help was what was asked for, or else the error without the help.

    Above the help is the tool's purpose. Kafka's tools print the help below some errors, Milena's below all.
    """
    if _USAGE not in text:
        return text
    return _USAGE if arguments in ((), ("--help",)) else text.replace(_USAGE, "") or _USAGE


def mask_measurements(text: str) -> str:
    """Return a text whose numbers are masked, except for how many digits they have after the point."""
    masked = re.sub(r"\d+(\.\d+)?", lambda number: "N" + re.sub(r"\d", "N", number[1] or ""), text)
    return re.sub(r"^N\tN\.N+$", "N\tN.N", masked, flags=re.MULTILINE)  # a latency, with as many digits as it needs


def lines_of(text: str) -> tuple[str, ...]:
    """Return the lines that are not blank, without blanks at their ends."""
    return tuple(line.rstrip() for line in text.split("\n") if line.strip())


class Stage(AbstractContextManager["Stage"]):
    """Brings a broker into the state that a session needs. A context manager that closes its clients."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._members: dict[str, Consumer] = {}
        self._running = ExitStack()
        self._kept: list[Producer] = []

    def perform(self, action: str) -> None:
        """Perform an action: its name and its arguments."""
        name, _, arguments = action.partition(" ")
        ACTIONS[name](self, arguments)

    def file(self, arguments: str) -> None:
        """`file NAME TEXT`: write a file."""
        name, _, text = arguments.partition(" ")
        (self._folder / name).write_text(text.replace("\\n", "\n").replace(ADDRESS, self._bootstrap))

    def produce(self, arguments: str) -> None:
        """`produce TOPIC PARTITION COUNT`: append one batch of values 0, 1, ... with one timestamp."""
        topic, partition, count = arguments.split()
        config = {"bootstrap.servers": self._bootstrap, "batch.num.messages": count, "linger.ms": 10_000}
        producer = Producer(config)
        now_ms = int(time.time() * 1000)
        for number in range(int(count)):
            producer.produce(topic, str(number), partition=int(partition), timestamp=now_ms)
        assert producer.flush(JOIN_TIMEOUT_S) == 0

    def commit(self, arguments: str) -> None:
        """`commit GROUP TOPIC PARTITION OFFSET`: commit an offset."""
        group, topic, partition, offset = arguments.split()
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition(topic, int(partition), int(offset))], asynchronous=False)
        consumer.close()

    def join(self, arguments: str) -> None:
        """`join GROUP TOPIC`: start a member of a group; it has its partitions afterwards."""
        group, topic = arguments.split()
        member = Consumer(
            {
                "bootstrap.servers": self._bootstrap, "group.id": group, "client.id": "reader",
                "enable.auto.commit": False, "partition.assignment.strategy": "range",
            }
        )  # fmt: skip
        self._members[group] = member
        self._running.callback(member.close)
        member.subscribe([topic])
        deadline = time.monotonic() + JOIN_TIMEOUT_S
        while not member.assignment():
            assert time.monotonic() < deadline, arguments
            member.poll(0.1)

    def leave(self, arguments: str) -> None:
        """`leave GROUP`: end the member of a group."""
        self._members.pop(arguments).close()

    def transact(self, arguments: str) -> None:
        """`transact ID TOPIC`: begin a transaction with one record, and leave it open."""
        transactional_id, topic = arguments.split()
        producer = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": transactional_id})
        self._kept.append(producer)
        producer.init_transactions(JOIN_TIMEOUT_S)
        producer.begin_transaction()
        producer.produce(topic, "open")
        assert producer.flush(JOIN_TIMEOUT_S) == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._running.close()


ACTIONS: Mapping[str, Callable[[Stage, str], None]] = {
    "file": Stage.file,
    "produce": Stage.produce,
    "commit": Stage.commit,
    "join": Stage.join,
    "leave": Stage.leave,
    "transact": Stage.transact,
}


def unexplained(entries: Sequence[Entry], printed: Sequence[Printed], *whose: str) -> list[str]:
    """Return a text for each command line whose output differs from the recorded one without a reason.

    Also for each whose output is equal although there is a reason to differ. `whose`: what of Milena took part, `tool`,
    `broker` or both.
    """
    return [
        f"$ {entry.command.line}\n{_differences(entry.recorded, result) or 'equal, with a reason to differ'}"
        for entry, result in zip(entries, printed, strict=True)
        if (entry.recorded != result) != any(part in entry.reasons for part in whose)
    ]


def _differences(recorded: Printed, printed: Printed) -> str:
    """Return the lines that one output has and the other has not."""
    return "\n".join(
        line for line in difflib.ndiff(_as_lines(recorded), _as_lines(printed)) if not line.startswith(("  ", "? "))
    )


def _as_lines(printed: Printed) -> list[str]:
    return [
        *(f"| {line}" for line in printed.stdout),
        *(f"! {line}" for line in printed.stderr),
        f"= {printed.status}",
    ]
