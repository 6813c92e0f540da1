"""The image without an engine: every package of the lock file has a wheel for both processors, and what they weigh."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest

from base.compiled import BUILD_FILES
from milena_broker.commands import modules

ROOT = Path(__file__).resolve().parents[1]
ADDED_BYTES_MAX = 40 << 20
"""The layers below, Debian and its Python, have about as much. With both, the image stays far below 150 MB."""
PLATFORMS = ("manylinux2014", "manylinux_2_17", "manylinux_2_28", "manylinux_2_34")


@pytest.mark.soak
@pytest.mark.parametrize("processor", ["x86_64", "aarch64"])
def test_every_package_has_a_wheel_and_all_fit(tmp_path: Path, processor: str) -> None:
    """Wheels are compressed like the layers of an image. The modules are counted as they are, without compression."""
    platforms = [option for name in PLATFORMS for option in ("--platform", f"{name}_{processor}")]
    subprocess.run(
        [
            *(sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", *platforms),
            *("--python-version", "3.11", "--implementation", "cp", "--dest", str(tmp_path)),
            *("--requirement", str(ROOT / "requirements.lock")),
        ],
        check=True,
    )
    wheels = sum(path.stat().st_size for path in tmp_path.iterdir())
    own = sum(
        path.stat().st_size
        for folder in ("base", "broker", "config", "controller", "milena_broker", "protocol", "storage", "tools")
        for path in (modules() / folder).rglob("*.py")
    )
    assert wheels + own <= ADDED_BYTES_MAX, f"{processor}: {wheels} bytes of wheels and {own} of modules"


def test_the_build_context_has_what_the_hot_loops_are_compiled_with() -> None:
    """Without these files a folder is no clone, and the image would get no compiled form."""
    context = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines()}
    assert set(BUILD_FILES) <= context


def test_image_serves_localhost_by_default_and_takes_variables() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert 'ENTRYPOINT ["bin/kafka-server-start", "--environment"]' in dockerfile
    assert "DEFAULT_KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092" in dockerfile
    assert not re.search(r"^(ENV| ) *KAFKA_", dockerfile, re.MULTILINE), "a user's variable could not win over it"
    assert "HEALTHCHECK" in dockerfile


def test_unit_of_systemd_checks_the_settings_and_leaves_time_to_stop() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(ROOT / "packaging" / "milena.service")
    service = unit["Service"]
    assert service["ExecStartPre"].split()[1] == "--check"
    assert service["ExecStart"].split()[0].endswith("/bin/kafka-server-start")
    assert int(service["TimeoutStopSec"]) >= 30
    assert int(service["LimitNOFILE"]) > 1024
