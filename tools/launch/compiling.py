"""Compiles modules in a clone, before a broker or the tests start: `python -m tools.launch.compiling`.

Owns the steps: is there anything to compile, is there a compiler, install Cython, compile, and put the result into
`.venv/compiled`. A start never fails here: it runs the interpreted form, and the caller reports the reason. Must not
know what the modules do.

What failed is not tried again until the sources, the interpreter or the compiler change. A result is moved into the
folder when it is complete, under a name that says what it was made from (`base.compiled`), so processes of several
versions can share the folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from base import compiled
from base.compiled import MODULES, ROOT, VARIABLE, checksum_of, compiled_files, digests, file_name, is_wanted
from tools.launch import environment
from tools.launch.environment import BUILD_LOCK, Progress

_FAILURE: Final = "failure"
_WORK_PREFIX: Final = "work-"
_TIMEOUT_S: Final = 300
_OUTPUT_MAX: Final = 2000
_KEPT_FORMS: Final = 4
"""How many compiled forms of a module are kept: several clones or branches may share an environment."""


class CannotCompileError(Exception):
    """Why modules stay interpreted; the text is for the user."""


def main() -> int:
    """Compile what is not compiled; print why not, and return 0 in either case."""
    if (reason := prepare()) is not None:
        print(f"The hot loops run interpreted: {reason}", file=sys.stderr)
    return 0


def prepare() -> str | None:
    """Compile the modules that are not compiled yet; return why some stay interpreted, or None."""
    if not is_wanted():
        return f"{VARIABLE} is no"
    if not compiled.is_clone():
        return None if compiled.form() == "compiled" else "this installation has no compiled modules for this Python"
    if not _missing():
        return None
    progress = Progress(sys.stderr)
    try:
        _compile_once(progress)
    except (CannotCompileError, OSError) as error:
        return str(error)
    finally:
        progress.end()
    compiled.look_again()
    return None


def _missing() -> list[str]:
    return sorted(set(MODULES) - set(compiled_files()))


def _compile_once(progress: Progress) -> None:
    """Compile unless another process does it first or it has failed. Raises CannotCompileError, OSError."""
    found = compiler()
    attempt = f"{sorted(digests().values())} {found} {os.stat(found).st_mtime_ns}"
    compiled.FOLDER.mkdir(exist_ok=True)
    descriptor = os.open(compiled.FOLDER, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        missing = _missing()
        if not missing:
            return
        failure = compiled.FOLDER / _FAILURE
        if failure.is_file():
            tried, _, reason = failure.read_text(encoding="utf-8", errors="replace").partition("\n")
            if tried == attempt:
                raise CannotCompileError(reason)
        try:
            _compile(missing, progress)
        except CannotCompileError as error:
            failure.write_text(f"{attempt}\n{error}", encoding="utf-8")
            raise
    finally:
        os.close(descriptor)


def compiler() -> str:
    """Return the path of the C compiler, which can compile modules of this Python. Raises CannotCompileError."""
    name = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    path = shutil.which(name)
    if path is None:
        raise CannotCompileError(f"no C compiler was found ({name})")
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.is_file():
        raise CannotCompileError(f"the headers of Python are missing ({header}); Debian has them in python3-dev")
    return path


def _compile(missing: Sequence[str], progress: Progress) -> None:
    """Install Cython, compile the modules and move them into the folder. Raises CannotCompileError, OSError."""
    if not environment.is_ready(ROOT, BUILD_LOCK) and environment.main([str(ROOT), BUILD_LOCK]):
        raise CannotCompileError("Cython could not be installed")
    progress.show(f"Compiling {len(missing)} modules (once)")
    for left in compiled.FOLDER.glob(f"{_WORK_PREFIX}*"):  # of a process that was killed
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=_WORK_PREFIX, dir=compiled.FOLDER) as work:
        starts = digests()
        for module, built in build(missing, Path(work)).items():
            os.replace(built, compiled.FOLDER / file_name(module, starts[module], checksum_of(built)))
            _remove_old_forms(module)


def build(modules: Sequence[str], work: Path, flags: str = "") -> dict[str, Path]:
    """Compile modules in a folder; return the file of each.

    Args:
        flags: further ones for the compiler and the linker.

    Raises:
        CannotCompileError: its text ends with what the compiler printed.
    """
    command = [sys.executable, "setup.py", "--quiet", "build_ext", f"--build-lib={work}/lib"]
    command.append(f"--parallel={os.cpu_count()}")
    variables = {**os.environ, "TMPDIR": str(work), "PYTHONPATH": str(ROOT), "MILENA_MODULES": " ".join(modules)}
    for name in ("CFLAGS", "LDFLAGS"):
        variables[name] = f"{os.environ.get(name, '')} {flags}".strip()
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=variables,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise CannotCompileError(f"the compiler took more than {_TIMEOUT_S} s") from None
    if done.returncode:
        output = (done.stdout + done.stderr).strip()
        raise CannotCompileError(f"the compiler failed: {output[-_OUTPUT_MAX:]}")
    return {module: _built(Path(work, "lib"), module) for module in modules}


def _built(folder: Path, module: str) -> Path:
    *parents, name = module.split(".")
    (file,) = folder.joinpath(*parents).glob(f"{name}.*")
    return file


def _remove_old_forms(module: str) -> None:
    forms = sorted(compiled.FOLDER.glob(f"{module}-*"), key=lambda path: path.stat().st_mtime_ns)
    for path in forms[:-_KEPT_FORMS]:
        path.unlink()


if __name__ == "__main__":
    raise SystemExit(main())
