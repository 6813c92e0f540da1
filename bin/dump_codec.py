#!/usr/bin/env python3
"""Print the code that reads and writes one version of an API's request and response.

    bin/dump_codec.py heartbeat 4
    bin/dump_codec.py FetchResponse 16

This code is compiled in memory on first use and is in no file; tracebacks through it show these lines.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from protocol.api import APIS
from protocol.codec import source_text


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Print the code that reads and writes one version of a message.")
    parser.add_argument("name", help="an API, a request or a response, in any case: heartbeat, FetchResponse")
    parser.add_argument("version", type=int)
    options = parser.parse_args(arguments)
    classes = _messages(options.name)
    if not classes:
        parser.error(f"no API, request or response is called {options.name!r}")
    for cls in classes:
        try:
            reader, writer = source_text(cls, options.version)
        except ValueError as error:
            parser.error(str(error))
        print(f"# {cls.__name__} v{options.version}\n\n{reader}\n{writer}")


def _messages(name: str) -> list[type]:
    """The classes that go by a name: both messages of an API, or one of them."""
    wanted = name.replace("_", "").replace("-", "").lower()
    return [
        cls
        for api in APIS.values()
        for cls in (api.request, api.response)
        if wanted in (api.name.lower(), cls.__name__.lower())
    ]


if __name__ == "__main__":
    main()
