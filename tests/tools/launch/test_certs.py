"""milena-certs."""

import stat
from pathlib import Path

from cryptography import x509

from tests.tools.conftest import RunTool
from tools.launch import certs


def test_files_are_private_and_the_settings_name_them(run: RunTool, tmp_path: Path) -> None:
    outcome = run(certs.main, str(tmp_path / "new"), "broker.example.com", "10.0.0.1")
    assert outcome.status == 0
    assert f"ssl.keystore.location={tmp_path}/new/server.pem" in outcome.stdout
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new").iterdir()}
    assert files == dict.fromkeys(("ca.key", "ca.pem", "server.pem", "client.pem"), 0o600)
    server = x509.load_pem_x509_certificate((tmp_path / "new" / "server.pem").read_bytes())
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["broker.example.com", "10.0.0.1"]


def test_authority_is_kept(tmp_path: Path) -> None:
    certs.make(tmp_path, ["a"])
    before = (tmp_path / "ca.pem").read_bytes()
    certs.make(tmp_path, ["b"])
    assert (tmp_path / "ca.pem").read_bytes() == before
    authority = x509.load_pem_x509_certificate(before)
    x509.load_pem_x509_certificate((tmp_path / "server.pem").read_bytes()).verify_directly_issued_by(authority)


def test_problem_with_the_folder_is_reported(run: RunTool, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = run(certs.main, str(tmp_path / "file"))
    assert outcome.status == 1
    assert "milena-certs:" in outcome.stderr
