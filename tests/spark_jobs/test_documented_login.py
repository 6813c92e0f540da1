"""The login that the documentation shows works as written, by a job in a process of its own."""

import os
import re
import shlex
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from base import properties
from base.jaas import parse_entry
from tests.spark_jobs.conftest import Topics, last_values, lines
from tests.spark_jobs.quick_drivers import job_environment, quick_flags
from tests.spark_jobs.test_documentation import PAGE
from tests.spark_jobs.test_security import set_password
from tests.support.broker import ROOT
from tests.support.parts import skip_when_unavailable
from tests.support.secrets import secrets_in
from tests.support.secured import SecuredBroker

pytestmark = pytest.mark.spark


def test_the_documented_login_works_as_written(tmp_path: Path) -> None:
    """Only the port differs, and the settings of Spark for drivers of tests are added."""
    section = PAGE.read_text(encoding="utf-8").partition("## Logins and TLS\n")[2]
    console = section.partition("```console\n")[2].partition("```")[0]
    show, command = re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]
    show, _, settings = show.partition("\n")
    login = parse_entry(properties.parse(settings)["sasl.jaas.config"])
    with skip_when_unavailable():
        flags = shlex.join(quick_flags())
    (tmp_path / "bin").symlink_to(ROOT / "bin")
    (tmp_path / "secured").mkdir()
    file = tmp_path / "secured" / "client.properties"
    file.write_text(settings)
    with SecuredBroker(tmp_path / "broker", kerberos=False) as broker:
        (tmp_path / "secured" / "ca.pem").symlink_to(broker.trusted)
        topics = Topics(broker.bootstrap("PLAINTEXT"))
        set_password(topics, login.options["username"], login.options["password"])
        topics.create_named("wordcount-input", 1)
        topics.send("wordcount-input", lines("a b", "b"))
        shown = subprocess.run(["sh", "-c", show], cwd=tmp_path, capture_output=True, check=True, text=True)
        assert shown.stdout == settings
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        command = command.strip().replace("localhost:9093", broker.bootstrap("SASL_SSL"))
        log = log_until_first_batch(f"exec {command} {flags}", tmp_path)
        assert "wordcount: batch 0: 2 records in " in log
        assert last_values(topics.read("wordcount-output")) == {"a": "1", "b": "2"}
    assert not secrets_in(log)


def log_until_first_batch(command: str, folder: Path) -> str:
    """Run a job, stop it after its first batch with SIGTERM, and return its log. It must end with 0."""
    logged = []
    with subprocess.Popen(
        ["sh", "-c", command],
        cwd=folder,
        env=job_environment(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as job:
        assert job.stderr is not None
        try:
            for line in job.stderr:
                logged.append(line)
                if ": batch 0: " in line:
                    job.terminate()
            assert job.wait() == 0, "".join(logged)
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
    return "".join(logged)
