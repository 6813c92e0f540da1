"""How launchers and console scripts run a module: `milena_broker.commands.run`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# A shell starts background processes with SIGINT ignored, and its children inherit that.
INTERRUPTIBLE = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])"
)
TIMEOUT_S = 60


def start(folder: Path, text: str) -> subprocess.Popen[str]:
    """Start a module with this text as a launcher does."""
    (folder / "some_tool.py").write_text(text)
    command = [sys.executable, "-P", "-m", "milena_broker", "some_tool"]
    return subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{folder}"},
        text=True,
    )


def test_an_interrupt_during_imports_ends_without_a_traceback(tmp_path: Path) -> None:
    process = start(tmp_path, "import time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=TIMEOUT_S) == ("", "")
    assert process.returncode == -signal.SIGINT


def test_main_has_the_interrupt_handler_of_python(tmp_path: Path) -> None:
    text = (
        "import signal\ndef main():\n    return 7 * (signal.getsignal(signal.SIGINT) is signal.default_int_handler)\n"
    )
    process = start(tmp_path, text)
    assert process.communicate(timeout=TIMEOUT_S) == ("", "")
    assert process.returncode == 7
