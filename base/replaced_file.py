"""A small file that is replaced as a whole.

Owns the order write, sync, rename. Must not know the content. Files of a broker's log directories are replaced through
`storage.disk.files.Files`, which tests let fail.
"""

import os
from pathlib import Path


def replace_file(path: Path, text: str) -> None:
    """Write `text` in place of the file: a crash of the process or the machine leaves the old or the new content."""
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("w", encoding="utf-8") as target:
        target.write(text)
        target.flush()
        os.fsync(target.fileno())
    partial.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
