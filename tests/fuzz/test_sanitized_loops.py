"""The compiled loops under AddressSanitizer: mutated bytes lead to no read or write outside an object."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from base.compiled import MODULES, ROOT
from tests.fuzz.sanitized_loops import BYTE_AT, LOOPS, READ_BEYOND, environment
from tools.launch import compiling
from tools.launch.compiling import CannotCompileError

FLAGS = "-fsanitize=address -fno-omit-frame-pointer"
INPUTS = 1_000_000
TIMEOUT_S = 3600


def sanitizer() -> Path:
    """Return the sanitizer's library; skip without a compiler that has it."""
    try:
        compiler = compiling.compiler()
    except CannotCompileError as error:
        pytest.skip(f"AddressSanitizer needs a compiler: {error}")
    found = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=False)
    library = Path(found.stdout.strip())
    if not library.is_absolute():
        pytest.skip(f"{compiler} has no libasan.so: install that of its version (Debian: libgcc-12-dev for gcc-12)")
    return library


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "tests.fuzz.sanitized_loops", *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, env=environment(sanitizer()), capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled modules with the sanitizer, as `sanitized_loops` reads them."""
    sanitizer()
    folder = tmp_path_factory.mktemp("sanitized")
    files = compiling.build((*MODULES, BYTE_AT), folder, FLAGS)
    listed = folder / "modules.json"
    listed.write_text(json.dumps({name: str(file) for name, file in files.items()}))
    return listed


def test_each_compiled_module_is_run_over_mutated_bytes() -> None:
    assert set(LOOPS) == set(MODULES)


@pytest.mark.soak
def test_sanitizer_notices_one_byte_too_many(modules: Path) -> None:
    done = run(modules, READ_BEYOND)
    assert done.returncode
    assert "ERROR: AddressSanitizer" in done.stderr
    assert "byte_at" in done.stderr


@pytest.mark.soak
@pytest.mark.timeout(TIMEOUT_S)
def test_mutated_bytes_lead_to_no_access_outside_an_object(modules: Path) -> None:
    done = run(modules, INPUTS, INPUTS)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout == f"{INPUTS} inputs\n"
