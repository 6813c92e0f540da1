"""A small file that is replaced as a whole.

Owns the order write, sync, rename. Must not know the content. Files of a broker's log directories are replaced through
`storage.disk.files.Files`, which tests let fail.
"""

from pathlib import Path

from base.system_calls import SYSTEM_CALLS


def replace_file(path: Path, content: str | bytes) -> None:
    """Write `content` in place of the file: a crash of the process or the machine leaves the old or the new one."""
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("wb") as target:
        target.write(content.encode() if isinstance(content, str) else content)
        target.flush()
        SYSTEM_CALLS.sync_data(target.fileno())
    partial.replace(path)
