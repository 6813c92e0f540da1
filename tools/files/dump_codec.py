"""dump-codec: prints the code that reads and writes one version of an API's request and response.

    bin/dump-codec heartbeat 4
    bin/dump-codec FetchResponse 16

The codec compiles this code in memory on first use, without a file; tracebacks through it show these lines.
"""

import argparse
from collections.abc import Sequence

from protocol.api import APIS
from protocol.codec import source_text


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status; a usage error ends the program with 2."""
    parser = argparse.ArgumentParser(
        "dump-codec", description="Print the code that reads and writes one version of a message."
    )
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
    return 0


def _messages(name: str) -> list[type]:
    """Return the classes with a name: both messages of an API, or one of them."""
    wanted = name.replace("_", "").replace("-", "").lower()
    return [
        cls
        for api in APIS.values()
        for cls in (api.request, api.response)
        if wanted in (api.name.lower(), cls.__name__.lower())
    ]


if __name__ == "__main__":
    raise SystemExit(main())
