"""kafka-check: what is expected of a host, how its facts are read, and what is printed and logged."""

from __future__ import annotations

import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.broker import BrokerProcess
from tests.tools.conftest import ROOT, Outcome, RunTool
from tools.launch import check
from tools.launch.host_checks import (
    PARAMETERS,
    Directory,
    Finding,
    HostFacts,
    Level,
    Load,
    Verdict,
    check_host,
    has_failed,
    problems,
)
from tools.launch.host_facts import mount_of, parse_mounts, read_facts

GOOD_DIRECTORY = Directory("/data", "xfs", frozenset({"rw", "noatime"}), 0.5, 0.9, False)
GOOD = HostFacts(
    descriptors_max=100_000,
    kernel={
        "vm.max_map_count": (262_144,),
        "vm.swappiness": (1,),
        "vm.dirty_background_ratio": (5,),
        "vm.dirty_ratio": (60,),
        "net.core.wmem_default": (131_072,),
        "net.core.rmem_default": (131_072,),
        "net.core.wmem_max": (2_097_152,),
        "net.core.rmem_max": (2_097_152,),
        "net.ipv4.tcp_wmem": (4_096, 65_536, 2_048_000),
        "net.ipv4.tcp_rmem": (4_096, 65_536, 2_048_000),
        "net.ipv4.tcp_window_scaling": (1,),
        "net.ipv4.tcp_max_syn_backlog": (2_048,),
        "net.core.netdev_max_backlog": (2_000,),
        "net.core.optmem_max": (65_536,),
        "net.ipv4.tcp_slow_start_after_idle": (0,),
    },
    swap_size=1 << 30,
    swap_used_size=0,
    available_memory_size=8 << 30,
    clock_is_synchronised=True,
    directories=[GOOD_DIRECTORY],
    segment_count=0,
)


def with_kernel(**values: tuple[int, ...]) -> HostFacts:
    return replace(GOOD, kernel={**GOOD.kernel, **{name.replace("__", "."): value for name, value in values.items()}})


def with_directory(**values: object) -> HostFacts:
    return replace(GOOD, directories=[GOOD_DIRECTORY._replace(**values)])  # type: ignore[arg-type]


NORMAL_LOAD = Load()


def missed(facts: HostFacts, load: Load = NORMAL_LOAD) -> list[tuple[str, Verdict]]:
    return [(finding.name, finding.verdict) for finding in problems(check_host(facts, load))]


def test_a_tuned_host_passes_every_check() -> None:
    findings = check_host(GOOD, Load(write_rate=100e6, is_mirroring=True))
    assert {finding.verdict for finding in findings} == {Verdict.OK}
    assert not has_failed(findings)
    assert [finding.name for finding in findings if finding.level is Level.MUST] == [
        "descriptor limit",
        "vm.max_map_count",
    ]


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        (replace(GOOD, swap_used_size=1 << 20), "swap"),
        (with_kernel(vm__swappiness=(0,)), "vm.swappiness"),
        (with_kernel(vm__swappiness=(60,)), "vm.swappiness"),
        (with_kernel(vm__dirty_background_ratio=(0,)), "vm.dirty_background_ratio"),
        (with_kernel(vm__dirty_background_ratio=(10,)), "vm.dirty_background_ratio"),
        (with_kernel(vm__dirty_ratio=(20,)), "vm.dirty_ratio"),
        (with_kernel(vm__dirty_ratio=(81,)), "vm.dirty_ratio"),
        (with_kernel(net__core__rmem_default=(131_071,)), "net.core.rmem_default"),
        (with_kernel(net__ipv4__tcp_wmem=(4_096, 16_384, 2_048_000)), "net.ipv4.tcp_wmem"),
        (with_kernel(net__ipv4__tcp_rmem=(4_096, 65_536, 4_194_304)), "net.ipv4.tcp_rmem"),
        (with_kernel(net__ipv4__tcp_window_scaling=(0,)), "net.ipv4.tcp_window_scaling"),
        (with_kernel(net__ipv4__tcp_max_syn_backlog=(1_024,)), "net.ipv4.tcp_max_syn_backlog"),
        (with_kernel(net__core__netdev_max_backlog=(1_000,)), "net.core.netdev_max_backlog"),
        (with_directory(file_system="overlay"), "file system of /data"),
        (with_directory(file_system="nfs4"), "file system of /data"),
        (with_directory(is_shared_with_application_logs=True), "file system of /data"),
        (with_directory(mount_options=frozenset({"rw", "relatime"})), "mount option of /data"),
        (with_directory(free_share=0.1), "free space of /data"),
        (with_directory(free_inode_share=0.05), "free inodes of /data"),
        (replace(GOOD, clock_is_synchronised=False), "clock"),
    ],
)
def test_deviation_is_a_warning(facts: HostFacts, name: str) -> None:
    assert missed(facts) == [(name, Verdict.WARN)]
    assert not has_failed(check_host(facts, Load()))


@pytest.mark.parametrize(
    ("facts", "load", "fails"),
    [
        (replace(GOOD, descriptors_max=10_001), Load(), []),
        (replace(GOOD, descriptors_max=10_000), Load(), ["descriptor limit"]),
        (replace(GOOD, descriptors_max=4_096, segment_count=100), Load(connections=1_000), []),
        (replace(GOOD, descriptors_max=1_300, segment_count=100), Load(connections=1_000), ["descriptor limit"]),
        (replace(GOOD, descriptors_max=100_000, segment_count=50_000), Load(), []),
        (replace(GOOD, descriptors_max=99_999, segment_count=None), Load(), ["descriptor limit"]),
        (replace(with_kernel(vm__max_map_count=(65_530,)), segment_count=16_000), Load(), []),
        (replace(with_kernel(vm__max_map_count=(65_530,)), segment_count=17_000), Load(), ["vm.max_map_count"]),
        (replace(with_kernel(vm__max_map_count=(65_530,)), segment_count=None), Load(), ["vm.max_map_count"]),
    ],
)
def test_limits_must_suffice_for_segments_and_connections(facts: HostFacts, load: Load, fails: list[str]) -> None:
    assert missed(facts, load) == [(name, Verdict.FAIL) for name in fails]
    assert has_failed(check_host(facts, load)) is bool(fails)


def test_a_host_without_swap_may_have_any_swappiness() -> None:
    assert missed(replace(with_kernel(vm__swappiness=(60,)), swap_size=0)) == []


def test_a_ratio_of_zero_is_right_if_bytes_are_set_instead() -> None:
    assert missed(with_kernel(vm__dirty_ratio=(0,), vm__dirty_bytes=(1 << 30,))) == []


def test_long_distances_are_checked_on_request() -> None:
    facts = with_kernel(net__core__optmem_max=(20_480,), net__ipv4__tcp_slow_start_after_idle=(1,))
    assert missed(facts) == []
    names = [name for name, _ in missed(facts, Load(is_mirroring=True))]
    assert names == ["net.core.optmem_max", "net.ipv4.tcp_slow_start_after_idle"]


def test_memory_should_hold_thirty_seconds_of_writes() -> None:
    assert missed(GOOD, Load(write_rate=200e6)) == []
    assert missed(GOOD, Load(write_rate=400e6)) == [("memory for the page cache", Verdict.WARN)]


def test_unreadable_value_is_unknown_and_no_failure() -> None:
    directory = Directory("/data", None, frozenset(), None, None, False)
    unknown = HostFacts(None, {}, None, None, None, None, [directory], None)
    findings = check_host(unknown, Load(write_rate=1.0, is_mirroring=True))
    assert {(finding.found, finding.verdict) for finding in findings} == {("unknown", Verdict.UNKNOWN)}
    assert not has_failed(findings)
    assert problems(findings) == []


def test_a_finding_names_what_was_found_and_expected() -> None:
    (finding,) = problems(check_host(with_kernel(vm__dirty_ratio=(20,)), Load()))
    assert finding == Finding("vm.dirty_ratio", Level.SHOULD, "20", "60 to 80, or vm.dirty_bytes", Verdict.WARN)
    assert str(finding) == "vm.dirty_ratio is 20, expected 60 to 80, or vm.dirty_bytes"


# -- reading ---------------------------------------------------------------------------------------------------------

MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw
30 27 8:1 / /data rw,noatime - xfs /dev/sda rw
31 30 8:2 / /data/with\\040blank rw - nfs4 server:/share rw
32 27 8:3 / /data rw,noatime - btrfs /dev/sdb rw
not a mount
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/", "ext4"), ("/database", "ext4"), ("/data", "btrfs"), ("/data/a", "btrfs"), ("/data/with blank/a", "nfs4")],
)
def test_the_mount_of_a_directory_is_the_innermost_and_latest(path: str, kind: str) -> None:
    mount = mount_of(parse_mounts(MOUNTS), path)
    assert mount is not None
    assert mount.kind == kind


def test_facts_are_read_from_proc_and_the_directories(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    for name, text in {
        "sys/vm/max_map_count": "65530\n",
        "sys/net/ipv4/tcp_wmem": "4096\t16384\t4194304\n",
        "sys/vm/swappiness": "many\n",
        "sys/vm/dirty_ratio": "",
        "self/mountinfo": "27 1 254:0 / / rw,noatime - xfs /dev/vda rw\n",
    }.items():
        (proc / name).parent.mkdir(parents=True, exist_ok=True)
        (proc / name).write_text(text)
    data = tmp_path / "data"
    for name in ("a-0/00000000000000000000.log", "a-0/00000000000000000000.index", "a-1/00000000000000000007.log"):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).touch()
    missing = tmp_path / "not" / "yet"
    facts = read_facts([str(data), str(missing)], str(tmp_path / "logs"), proc=proc)
    assert facts.kernel == {"vm.max_map_count": (65_530,), "net.ipv4.tcp_wmem": (4_096, 16_384, 4_194_304)}
    assert facts.segment_count == 2
    assert [directory.path for directory in facts.directories] == [str(data), str(missing)]
    for directory in facts.directories:
        assert (directory.file_system, directory.mount_options) == ("xfs", {"rw", "noatime"})
        assert directory.free_share is not None
        assert directory.is_shared_with_application_logs
    assert read_facts(None, None, proc=tmp_path / "none").segment_count is None


@pytest.mark.parametrize(
    ("name", "text", "is_limited"),
    [
        ("memory.max", "1048576\n", True),
        ("memory.max", "max\n", False),
        ("memory/memory.limit_in_bytes", "1048576\n", True),
        ("memory/memory.limit_in_bytes", f"{(1 << 63) - 4096}\n", False),
    ],
)
def test_the_limit_of_a_container_counts_as_available_memory(
    tmp_path: Path, name: str, text: str, is_limited: bool
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    facts = read_facts(None, None, cgroups=tmp_path)
    assert (facts.available_memory_size == 1_048_576) is is_limited


def test_every_parameter_is_a_file_of_linux() -> None:
    assert len(set(PARAMETERS)) == len(PARAMETERS)
    known = [name for name in PARAMETERS if Path("/proc/sys", *name.split(".")).exists()]
    assert "vm.max_map_count" in known


# -- the tool --------------------------------------------------------------------------------------------------------


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "read_facts", lambda log_dirs, application_logs: GOOD)


@pytest.mark.usefixtures("tuned")
def test_the_table_has_a_line_for_each_check(run: RunTool) -> None:
    outcome = run(check.main)
    assert (outcome.status, outcome.stderr) == (0, "")
    lines = outcome.stdout.splitlines()
    assert lines[0].split() == ["CHECK", "LEVEL", "FOUND", "EXPECTED", "RESULT"]
    assert all(line.endswith(" OK") for line in lines[1:])
    assert len(lines) == 1 + len(check_host(GOOD, Load()))


def test_the_exit_status_is_1_if_a_must_fails(run: RunTool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "read_facts", lambda log_dirs, application_logs: replace(GOOD, descriptors_max=1_024))
    outcome = run(check.main)
    assert outcome.status == 1
    (line,) = (line for line in outcome.stdout.splitlines() if line.endswith("FAIL"))
    assert line.split()[:4] == ["descriptor", "limit", "must", "1024"]


def test_the_settings_name_directories_and_connections(run: RunTool, tmp_path: Path) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text(f"log.dirs={tmp_path}/data\nmax.connections=500\n")
    outcome = run(check.main, "--config", str(settings))
    assert f"\nfile system of {tmp_path}/data " in outcome.stdout
    assert "or more than 500 for 0 segments and 500 connections" in outcome.stdout


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--config", "/nowhere"), "Cannot read /nowhere: No such file or directory"),
        (("--write-rate", "fast"), "Cannot parse argument 'fast' of option write-rate"),
        (("--write-rate", "-1"), "Cannot parse argument '-1' of option write-rate"),
        (("--write-rate", "nan"), "Cannot parse argument 'nan' of option write-rate"),
        (("--configs", "x"), "configs is not a recognized option; did you mean --config?"),
    ],
)
def test_bad_command_lines_name_what_is_wrong(run: RunTool, arguments: tuple[str, ...], error: str) -> None:
    outcome = run(check.main, *arguments)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.splitlines()[0] == error


def test_invalid_settings_are_one_line(run: RunTool, tmp_path: Path) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text("num.io.threads=0\n")
    text = f"{settings}: Invalid value 0 for configuration num.io.threads: Value must be at least 1\n"
    assert run(check.main, "--config", str(settings)) == Outcome(1, "", text)


def test_a_broker_that_others_reach_logs_what_its_host_misses(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    overrides = {"listeners": f"PLAINTEXT://0.0.0.0:{port}", "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    # 1 024 descriptors are too few for the expected connections.
    with BrokerProcess(tmp_path, overrides, port=port, descriptors_max=1_024) as broker:
        pass
    lines = [line for line in broker.log.read_text().splitlines() if "(kafka.server.HostChecks)" in line]
    (line,) = (line for line in lines if "host check" in line)
    assert "WARN host check: descriptor limit is 1024, expected at least 100000" in line
    assert all(" WARN " in line for line in lines)


def test_a_broker_that_only_this_machine_reaches_logs_nothing_of_its_host(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, descriptors_max=1_024) as broker:
        pass
    assert "host check" not in broker.log.read_text()


def test_the_launcher_runs_in_a_pipe_that_closes_early() -> None:
    command = f"{ROOT}/bin/kafka-check | head -1"
    finished = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert finished.stdout.startswith("CHECK")
    assert finished.stderr == ""
