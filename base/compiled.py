"""The modules that are also compiled, and how a process gets their compiled form.

A module in `MODULES` is plain Python with a `.pxd` beside it, which declares the C types for Cython. Both forms do the
same; the interpreted one is slower. In a wheel the compiled form lies beside the source, where Python's own import
prefers it. In a clone it lies in `.venv/compiled`: `tools.launch.compiling` puts it there, and `prefer_compiled` lets
the import find it.

Owns the list, the names of the files in that folder, and the question which form a process runs. Must not know how a
module is compiled.

The name of a file says what it was made from: a digest of the module, of all declarations, of the build and of the
interpreter. A changed source is interpreted until it is compiled again. The name ends with a checksum of the file, so
that one that was written half, or damaged, is not loaded.
"""

import hashlib
import os
import sys
import zlib
from collections.abc import Mapping
from contextlib import suppress
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec, SourceFileLoader
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

MODULES: Final = (
    "protocol.records.plain_messages",
    "protocol.records.plain_records",
    "storage.cleaning.offset_map",
)

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / ".venv" / "compiled"
BUILD_FILES: Final = ("setup.py", "requirements-build.lock")
VARIABLE: Final = "MILENA_COMPILED"
"""An environment variable: with the value `no`, a process runs the interpreted form."""

_SUFFIX: Final = EXTENSION_SUFFIXES[0]


def is_wanted() -> bool:
    return os.environ.get(VARIABLE) != "no"


def is_clone() -> bool:
    return (ROOT / BUILD_FILES[0]).is_file()


def prefer_compiled() -> None:
    """Let this process import the compiled form of each module that has one. To be called before they are imported."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(compiled_files() if is_wanted() else None))


def look_again() -> None:
    """Let this process import also what has been compiled since `prefer_compiled`."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
    prefer_compiled()


def compiled_files() -> dict[str, Path]:
    """Return the files of compiled modules in `.venv/compiled` that fit the sources, by module."""
    try:
        names = os.listdir(FOLDER)
    except OSError:
        return {}
    starts = digests()
    found = {}
    for name in names:
        module, _, rest = name.removesuffix(_SUFFIX).partition("-")
        digest, _, checksum = rest.partition("-")
        if starts.get(module) == digest and name.endswith(_SUFFIX):
            with suppress(OSError):  # another process may have removed it, or this user may not read it
                if checksum_of(FOLDER / name) == checksum:
                    found[module] = FOLDER / name
    return found


def digests() -> dict[str, str]:
    """Return the digest of what each module is made from."""
    shared = hashlib.sha256(f"{sys.version} {_SUFFIX}".encode())
    for path in (*(ROOT / name for name in BUILD_FILES), *(source_of(name).with_suffix(".pxd") for name in MODULES)):
        shared.update(path.read_bytes())
    found = {}
    for name in MODULES:
        digest = shared.copy()
        digest.update(source_of(name).read_bytes())
        found[name] = digest.hexdigest()[:16]
    return found


def source_of(module: str) -> Path:
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")


def file_name(module: str, digest: str, checksum: str) -> str:
    return f"{module}-{digest}-{checksum}{_SUFFIX}"


def checksum_of(path: Path) -> str:
    return f"{zlib.crc32(path.read_bytes()):08x}"


def form() -> str:
    """Return the form of the modules in this process: `compiled`, `interpreted`, or how many of them are compiled."""
    prefer_compiled()
    specs = [find_spec(name) for name in MODULES]
    count = sum(spec is not None and not str(spec.origin).endswith(".py") for spec in specs)
    if count in (0, len(specs)):
        return "compiled" if count else "interpreted"
    return f"{count} of {len(specs)} modules compiled"


class _Finder:
    """Finds the modules of the list: in these files, or with None as the source even if a wheel has both forms.

    In a clone nothing beside the source is loaded, because nothing tells what it was made from.
    """

    def __init__(self, files: Mapping[str, Path] | None) -> None:
        self._files = files

    def find_spec(self, fullname: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname not in MODULES:
            return None
        if self._files is not None:
            if (file := self._files.get(fullname)) is not None:
                return spec_from_file_location(fullname, file, loader=_Loader(fullname, str(file)))
            if not is_clone():
                return None
        return spec_from_file_location(fullname, source_of(fullname))


class _Loader(ExtensionFileLoader):
    """Loads a compiled module, or its source if this system cannot load the file, as after a move to another one."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:  # type: ignore[override]
        try:
            return super().create_module(spec)
        except ImportError:
            spec.origin = str(source_of(spec.name))
            spec.loader = SourceFileLoader(spec.name, spec.origin)
            return None  # which importlib allows: then it makes an empty module, which the new loader executes
