"""The hashes of the jars that Spark fetches from Maven Central, and the check of fetched jars against them.

Owns `connector.sha256`, in the format of sha256sum(1).
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

TABLE = Path(__file__).with_name("connector.sha256")


class WrongHashError(Exception):
    """A fetched jar is not the one that this project was tested with."""


def verify(urls: Iterable[str], *, is_complete: bool, table: Path = TABLE) -> None:
    """Check the jars at `urls` (the setting spark.jars) against the table.

    With `is_complete`, the table must list every jar; otherwise further jars are the user's own.
    Raises WrongHashError, which names the file and both hashes.
    """
    pinned = _read(table)
    for jar in (Path(unquote(urlsplit(url).path)) for url in urls):
        expected = pinned.get(jar.name)
        if expected is None and not is_complete:
            continue
        with jar.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
        if found != expected:
            raise WrongHashError(f"{jar} has SHA-256 {found}, {table.name} expects {expected or 'no such file'}")


def _read(table: Path) -> Mapping[str, str]:
    lines = (line.split() for line in table.read_text(encoding="utf-8").splitlines())
    return {name: sha256 for sha256, name in lines}
