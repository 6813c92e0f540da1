"""Which form of a module a process imports: the compiled one only if it fits the sources and the interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

import pytest

from base import compiled
from base.compiled import MODULES, checksum_of, compiled_files, digests, file_name, source_of

ROOT = Path(__file__).resolve().parents[2]
MODULE = "protocol.records.plain_records"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(compiled, "FOLDER", tmp_path)
    return tmp_path


def put(folder: Path, content: bytes, digest: str | None = None) -> Path:
    """Write the file of a compiled module, as compiling does."""
    path = folder / "new"
    path.write_bytes(content)
    return path.rename(folder / file_name(MODULE, digest or digests()[MODULE], checksum_of(path)))


def load(files: Mapping[str, Path] | None) -> ModuleType:
    spec = compiled._Finder(files).find_spec(MODULE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_module_with_declarations_is_in_the_list() -> None:
    files = (path.relative_to(ROOT).with_suffix("") for path in ROOT.glob("*/**/*.pxd"))
    found = {path for path in files if path.parts[0] not in (".venv", "tests")}
    assert sorted(".".join(path.parts) for path in found) == sorted(MODULES)
    assert all(source_of(name).is_file() for name in MODULES)


def test_complete_file_of_these_sources_is_found(folder: Path) -> None:
    path = put(folder, b"machine code")
    assert compiled_files() == {MODULE: path}


def test_file_of_other_sources_is_not_found(folder: Path) -> None:
    put(folder, b"machine code", digest="0" * 16)
    assert compiled_files() == {}


def test_file_of_another_interpreter_is_not_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder, b"machine code")
    monkeypatch.setattr(compiled, "_SUFFIX", ".cpython-399-x86_64-linux-gnu.so")
    assert compiled_files() == {}


def test_half_written_file_is_not_found(folder: Path) -> None:
    put(folder, b"machine code").write_bytes(b"mach")
    assert compiled_files() == {}


def test_file_that_another_process_removes_meanwhile_is_not_found(folder: Path) -> None:
    path = put(folder, b"machine code")
    path.unlink()
    path.symlink_to(folder / "removed")
    assert compiled_files() == {}


def test_other_files_and_no_folder_are_no_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("failure", "x-y-z.so", f"{MODULE}.so", "-", "é-1-2"):
        (folder / name).write_bytes(b"")
    assert compiled_files() == {}
    monkeypatch.setattr(compiled, "FOLDER", folder / "missing")
    assert compiled_files() == {}


def test_file_that_this_system_cannot_load_leaves_the_source(folder: Path) -> None:
    module = load({MODULE: put(folder, b"not machine code")})
    assert module.__file__ == str(source_of(MODULE))
    assert module.pass_regular(b"", 0, 0, 0, 0, False) == (0, 0, 0)


def test_source_is_loaded_in_a_clone_whatever_is_beside_it() -> None:
    assert load({}).__file__ == str(source_of(MODULE))


def test_source_is_loaded_when_the_compiled_form_is_not_wanted() -> None:
    assert load(None).__file__ == str(source_of(MODULE))
