"""The command line that the tools share: options as in Kafka's Java tools, usage errors, exit status.

It keeps what scripts rely on: `--option value` and `--option=value`, unambiguous prefixes of long options, `--version`,
and for an error one line with the problem, the usage on stderr and exit status 1. `--help` ends as with Kafka's tool:
the usage on stderr and exit status 1, but on stdout and 0 from the tools that Kafka built on another parser (those with
sub-commands, the producer's performance test and the verifiable clients) and from Milena's own. A tool declares its
options on a `CommandLine`, parses, and raises UsageError for invalid combinations.

Owns parsing, errors and exit status. Must not know any tool or any broker.
"""

import argparse
import os
import re
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from itertools import zip_longest
from typing import Any, NoReturn, Self

from tools.base.version import version_line
from tools.log_output.logging_setup import start_tool_logging

BOOTSTRAP_SERVER = ("--bootstrap-server", "--bootstrap-servers", "--broker-list")
"""The option for broker addresses, under any of these names."""
BOOTSTRAP_SERVER_ONLY = BOOTSTRAP_SERVER[:2]
"""The same without `--broker-list`, which has another meaning in some tools."""


HELP_WIDTH = 100
SIGNAL_CHECK_S = 0.5
_OPTION_WIDTH = 40
_DESCRIPTION_WIDTH = HELP_WIDTH - _OPTION_WIDTH - 1
_INDENT = "  "
_GIVEN = "options_given_once"


class UsageError(Exception):
    """An invalid command line. The text is one line that names the problem."""


class InvalidSettingsError(UsageError):
    """The command line is right, and a setting or a file that it names is not: the usage would not help."""


class UnreachableError(Exception):
    """No broker accepts a connection. The text is one line that names the addresses and the reason."""


class WithoutArguments(Enum):
    """What a tool does without arguments."""

    USAGE_ERROR = "prints its help to stderr and fails"
    HELP = "prints its help"
    RUN = "runs"


class CommandLine(argparse.ArgumentParser):
    """The options of one tool."""

    def __init__(
        self,
        name: str,
        description: str,
        examples: Sequence[str] = (),
        *,
        without_arguments: WithoutArguments = WithoutArguments.USAGE_ERROR,
        help_succeeds: bool = False,
    ) -> None:
        """
        Args:
            examples: arguments of complete command lines, for the help.
            help_succeeds: whether `--help` prints to stdout and ends with 0; see the module.
        """
        self._formatter: argparse.HelpFormatter | None = None
        super().__init__(name, description=description, add_help=False)
        self._examples = examples
        self._without_arguments = without_arguments
        self._help_succeeds = help_succeeds or without_arguments is WithoutArguments.HELP
        self.add_argument("--help", action="store_true", help="Print usage information.")
        self.add_argument("-h", action="store_true", dest="help", help=argparse.SUPPRESS)
        self.add_argument("--version", action="store_true", help="Display Kafka version.")

    def add_flag(self, name: str, help_text: str) -> None:
        """Add an option without a value."""
        self.add_argument(name, action="store_true", dest=_destination(name), help=help_text)

    def add_option(
        self,
        *names: str,
        value: str,
        help_text: str,
        parse: Callable[[str], Any] = str,
        default: Any = None,
        repeatable: bool = False,
        value_is_optional: bool = False,
        value_if_absent: Any = None,
        takes_several: bool = False,
    ) -> None:
        """Add an option with a value, under one or several names; messages and the result use the first.

        With `takes_several` its value is the list of the values that follow it.
        """
        self.add_argument(
            *names,
            action="append" if repeatable else _StoreOnce,
            dest=_destination(names[0]),
            metavar=value,
            type=parse,
            default=[] if repeatable and default is None else default,
            nargs="?" if value_is_optional else "+" if takes_several else None,
            const=value_if_absent,
            help=help_text,
        )

    def add_listed(self, *names: str, to: str, entry: str, value: str | None, help_text: str) -> None:
        """Add an option whose position matters: each use appends (`entry`, value) to the list `to`.

        Without `value`, its placeholder in the usage, it is a flag, and the value in the list is None.
        """
        self.add_argument(
            *names, action=_Listed, dest=to, const=entry, metavar=value, nargs=None if value else 0, help=help_text
        )

    def parse(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """Return the given options. Raises UsageError, also without arguments; exits for `--version` and `--help`."""
        given = sys.argv[1:] if arguments is None else list(arguments)
        if not given and self._without_arguments is WithoutArguments.USAGE_ERROR:
            raise UsageError("")
        options, unknown = self.parse_known_args(given)
        if options.version:
            print(version_line())
            raise SystemExit(0)
        if options.help or (not given and self._without_arguments is WithoutArguments.HELP):
            print(self.format_help(), end="", file=sys.stdout if self._help_succeeds else sys.stderr)
            raise SystemExit(0 if self._help_succeeds else 1)
        for argument in unknown:
            if argument.startswith("-"):
                raise UsageError(self._unknown(argument.partition("=")[0]))
            warn(f"{argument} is ignored: it belongs to no option")
        return options

    def format_help(self) -> str:
        """Return the purpose of the tool and a table of its options."""
        rows = [("Option", "Description"), ("------", "-----------")]
        options = (
            action
            for action in self._actions
            if not isinstance(action, argparse._SubParsersAction) and action.help is not argparse.SUPPRESS
        )
        rows += sorted((_option_text(action), action.help or "") for action in options)
        table = (line for row in rows for line in _table_lines(*row))
        examples = [line for example in self._examples for line in _example_lines(f"{self.prog} {example}")]
        if examples:
            examples = ["", "Examples:", *examples]
        return "\n".join((wrapped(self.description or ""), *table, *examples, ""))

    def _unknown(self, name: str) -> str:
        """Return the text about an option that does not exist."""
        from difflib import get_close_matches  # few command lines need it

        known = [option for action in self._actions for option in action.option_strings]
        nearest = get_close_matches(name, known, n=1)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        return f"{name.lstrip('-')} is not a recognized option{hint}"

    def error(self, message: str) -> NoReturn:
        """Raise UsageError for an error of argparse, with the text of Kafka's tools."""
        if match := re.fullmatch(r"argument ([^:]*): expected (?:one|at least one) argument", message):
            raise UsageError(f"Option {_first_name(match[1])} requires an argument")
        if match := re.fullmatch(r"argument ([^:]*): invalid .* value: '(.*)'", message, re.DOTALL):
            raise UsageError(f"Cannot parse argument '{match[2]}' of option {_first_name(match[1])}")
        raise UsageError(message)

    def _get_formatter(self) -> argparse.HelpFormatter:
        """Return one formatter: argparse requests one for each option that is added, to check its placeholder."""
        if self._formatter is None:
            self._formatter = argparse.HelpFormatter(self.prog, width=HELP_WIDTH)
        return self._formatter

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        """Return the options that a prefix matches; several names of one option count once."""
        tuples: list[Any] = super()._get_option_tuples(option_string)
        return tuples[:1] if len({id(candidate[0]) for candidate in tuples}) == 1 else tuples

    def require(self, options: argparse.Namespace, *names: str) -> None:
        """Raise UsageError for the first of the options that is missing."""
        for name in names:
            if getattr(options, _destination(name)) in (None, []):
                raise UsageError(f'Missing required argument "[{name.lstrip("-")}]"')

    def require_one_of(self, options: argparse.Namespace, name: str, values: Sequence[str]) -> None:
        """Raise UsageError if an option has a value that is not among `values`."""
        value = getattr(options, _destination(name))
        if value is not None and value not in values:
            raise UsageError(
                f"Cannot parse argument '{value}' of option {name.lstrip('-')}: expected {', '.join(values)}"
            )

    def forbid(self, options: argparse.Namespace, used: str, *invalid: str) -> None:
        """Raise UsageError if `used` is given together with one of the others."""
        if not is_given(options, used):
            return
        for name in invalid:
            if is_given(options, name):
                raise UsageError(f'Option "[{used.lstrip("-")}]" can\'t be used with option "[{name.lstrip("-")}]"')


def run_tool(
    line: CommandLine,
    main: Callable[[CommandLine, argparse.Namespace], int],
    arguments: Sequence[str] | None,
    *,
    error_prefix: str | None = None,
) -> int:
    """Parse the arguments, run the tool and return its exit status.

    With an `error_prefix`, a usage error prints this prefix and the error, and no usage.
    """

    def run() -> int:
        try:
            return main(line, line.parse(arguments))
        except UsageError as error:
            texts = [f"{error_prefix or ''}{error}\n"] if str(error) else []
            shows_usage = error_prefix is None and not isinstance(error, InvalidSettingsError)
            texts += [line.format_help()] if shows_usage or not texts else []
            # Scripts find the error first, as in Kafka's tools; on a screen the help must not push it away.
            for text in reversed(texts) if sys.stderr.isatty() else texts:
                print(text, end="", file=sys.stderr)
            return 1
        except UnreachableError as error:
            print(error, file=sys.stderr)
            return 1

    return run_guarded(run)


def run_guarded(run: Callable[[], int]) -> int:
    """Return the exit status of `run`, also if SIGINT or SIGTERM ends it or the reader of its output has gone."""
    previous_handler = signal.signal(signal.SIGTERM, _interrupt)
    try:
        try:
            start_tool_logging(os.environ)
            status = run()
        finally:
            sys.stdout.flush()  # a closed pipe must be noticed here, also at the end of a help text
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has closed the pipe; buffered output must not be written at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    finally:
        signal.signal(signal.SIGTERM, previous_handler)
    return status


def run_usage_tool(usage: str, run: Callable[[Sequence[str]], int], arguments: Sequence[str]) -> int:
    """Return the exit status of a tool without options, whose help is one usage text.

    `--help`, `--version`, an unknown option and no argument at all do not reach `run`.
    """
    first = arguments[0] if arguments else ""

    def run_or_print_usage() -> int:
        match first:
            case "--version":
                print(version_line())
            case "--help" | "-h" | "":
                print(usage, file=sys.stderr)
                return 1
            case _ if first.startswith("-"):
                print(f"{first.lstrip('-')} is not a recognized option\n{usage}", file=sys.stderr)
                return 1
            case _:
                return run(arguments)
        return 0

    return run_guarded(run_or_print_usage)


def is_given(options: argparse.Namespace, name: str) -> bool:
    """Return whether an option has a value, or a flag is set."""
    value = getattr(options, _destination(name))
    return value is not None and value is not False and value != []  # 0 is a value


def parse_words(text: str | None, known: Sequence[str], one: str, many: str) -> list[str]:
    """Return the words of a comma-separated list, in the spelling of `known`. Raises UsageError.

    `one` and `many` name a word and several words in the error.
    """
    by_lower_case = {word.lower(): word for word in known}
    words = [word.strip().lower() for word in (text or "").split(",") if word.strip()]
    if any(word not in by_lower_case for word in words):
        raise UsageError(f"Invalid {one} list '{text}'. Valid {many} are: {', '.join(known)}")
    return [by_lower_case[word] for word in words]


class StopRequest:
    """Catches SIGINT and SIGTERM during a `with` block, so that a loop can end between two steps.

    It catches only the first signal: a second one ends the process during the step. `on_made` is called at the first.
    """

    def __init__(self, on_made: Callable[[], None] = lambda: None) -> None:
        self.is_made = False
        self._on_made = on_made
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._notice)
        return self

    def __exit__(self, *exception: object) -> None:
        self._restore()

    def _notice(self, number: int, frame: object) -> None:
        self.is_made = True
        self._restore()
        self._on_made()

    def _restore(self) -> None:
        while self._previous:
            signal.signal(*self._previous.popitem())


def wait_for_signal(stopped: threading.Event) -> None:
    """Wait in the main thread until a handler of a signal sets `stopped`.

    The kernel may give a signal to another thread. Its handler runs in the main thread, but does not end a wait without
    a timeout there.
    """
    while not stopped.wait(SIGNAL_CHECK_S):
        pass


def warn(text: str) -> None:
    """Print a warning on stderr, so that results can be piped."""
    print(f"WARNING: {text}", file=sys.stderr)


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _destination(name: str) -> str:
    return re.sub(r"[-.]", "_", name.lstrip("-"))


def _first_name(names: str) -> str:
    return names.partition("/")[0].lstrip("-")


def _option_text(action: argparse.Action) -> str:
    names = ", ".join(action.option_strings)
    if not names:
        return f"<{action.dest}>" if action.nargs == "?" else f"<{action.dest}>..."
    if action.metavar is None:
        return names
    return f"{names} [<{action.metavar}>]" if action.nargs == "?" else f"{names} <{action.metavar}>"


def wrapped(text: str, indent: int = 0) -> str:
    """Return paragraphs in lines of at most HELP_WIDTH columns; the first line of each is not indented."""
    return "\n".join(
        textwrap.fill(line, HELP_WIDTH, subsequent_indent=indent * " ", break_long_words=False, break_on_hyphens=False)
        for line in text.splitlines()
    )


def _example_lines(example: str) -> list[str]:
    """Return a command line in lines that a shell reads as one."""
    width = HELP_WIDTH - len(" \\")
    lines = textwrap.wrap(
        example,
        width,
        initial_indent=_INDENT,
        subsequent_indent=2 * _INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def _table_lines(option: str, description: str) -> Iterator[str]:
    """Return the lines of a row in the table of options; long cells continue in the next line."""
    options = textwrap.wrap(option, _OPTION_WIDTH, break_long_words=False, break_on_hyphens=False)
    descriptions = textwrap.wrap(description, _DESCRIPTION_WIDTH, break_long_words=False, break_on_hyphens=False)
    for left, right in zip_longest(options, descriptions, fillvalue=""):
        yield f"{left:<{_OPTION_WIDTH}} {right}".rstrip()


class _StoreOnce(argparse.Action):
    """Stores the value of an option, and rejects a second one."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        name = self.option_strings[0].lstrip("-")
        given: set[str] = getattr(namespace, _GIVEN, set())
        if name in given:
            raise UsageError(f"Found multiple arguments for option {name}, but you asked for only one")
        setattr(namespace, _GIVEN, given | {name})
        setattr(namespace, self.dest, values)


class _Listed(argparse.Action):
    """Stores the uses of several options in one list, in the order of the command line."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        listed = getattr(namespace, self.dest) or []
        setattr(namespace, self.dest, [*listed, (self.const, values if self.nargs is None else None)])
