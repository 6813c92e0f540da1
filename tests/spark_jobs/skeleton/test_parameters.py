"""The shared command line: invalid values are rejected before the start, others are passed to Spark."""

from pathlib import Path

import pytest

from spark_jobs import flights_daily, mirror, reset
from spark_jobs.skeleton.parameters import JobParameters, job_parser

REQUIRED = ["--bootstrap-servers", "b:1", "--checkpoint", "/c"]

REFUSED = {
    "interval": (["--watermark", "soon"], "argument --watermark: expected an interval such as '2 days', not 'soon'"),
    "trigger": (["--trigger", "0 seconds"], "argument --trigger: expected availableNow or an interval"),
    "offsets": (["--starting-offsets", "first"], "expected earliest, latest or a JSON object, not 'first'"),
    "offsets that are no object": (["--starting-offsets", "[1]"], "not '[1]'"),
    "count": (["--max-offsets-per-trigger", "0"], "expected a whole number above 0, not '0'"),
    "pair": (["--kafka-option", "acks"], "argument --kafka-option: expected key=value, not 'acks'"),
    "pair without key": (["--spark-conf", "=1"], "argument --spark-conf: expected key=value, not '=1'"),
    "choice": (["--on-error", "shrug"], "argument --on-error: invalid choice: 'shrug'"),
    "port": (["--metrics", "70000"], "argument --metrics: expected PORT or HOST:PORT, not '70000'"),
    "address without a scheme": (
        ["--schema-registry", "h:8081"],
        "expected a URL such as http://localhost:8081, not 'h:8081'",
    ),
    "unknown flag": (["--inputs", "x"], "unrecognized arguments: --inputs x"),
}


def parse(*more: str) -> JobParameters:
    parser = job_parser("some_job", "Does something.", input_topic="in", output_topic="out", watermark="1 hour")
    return JobParameters(**vars(parser.parse_args([*REQUIRED, *more])))


@pytest.mark.parametrize(("flags", "message"), REFUSED.values(), ids=REFUSED)
def test_invalid_value_is_named_and_exits_with_2(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        parse(*flags)
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


CONTRADICTIONS = {
    "no dead-letter topic": (["--on-error", "dlq"], "argument --on-error: dlq needs --dead-letter TOPIC"),
    "unused dead-letter topic": (["--on-error", "skip", "--dead-letter", "x"], "'x' is unused with --on-error skip"),
    "no group": (["--from-group"], "argument --from-group: needs --commit-group GROUP"),
    "two starts": (
        ["--from-group", "--commit-group", "g", "--starting-offsets", "latest"],
        "argument --from-group: not allowed with --starting-offsets",
    ),
    "a start in no topic of the job": (
        ["--starting-offsets", '{"flight":{"0":1}}'],
        "argument --starting-offsets: 'flight' is not a topic of this job",
    ),
    "no schema": (["--value-format", "avro"], "avro needs --schema FILE"),
    "no registry": (["--value-format", "avro-registry"], "avro-registry needs --schema-registry URL"),
}


@pytest.mark.parametrize(("flags", "message"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_flags_that_contradict_each_other_exit_with_2(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        flights_daily.JOB.parse([*REQUIRED, "--parquet", "/p", *flags])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


def test_dead_letters_are_wanted_if_a_topic_for_them_is_named() -> None:
    assert parse().error_action == "fail"
    assert parse("--dead-letter", "x").error_action == "dlq"
    assert parse("--on-error", "skip").error_action == "skip"


def test_the_url_of_a_registry_has_no_login_and_no_last_slash(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse("--schema-registry", "https://h/api/").schema_registry == "https://h/api"
    with pytest.raises(SystemExit):
        parse("--schema-registry", "http://user:secret@h:8081")
    message = capsys.readouterr().err
    assert "argument --schema-registry: expected a URL without a login" in message
    assert "secret" not in message


def test_a_port_without_a_host_is_on_the_loopback_address() -> None:
    assert parse("--metrics", "9404").metrics == ("127.0.0.1", 9404)
    assert parse("--metrics", "0.0.0.0:9404").metrics == ("0.0.0.0", 9404)


def test_the_master_is_passed_to_spark_and_own_settings_override_it() -> None:
    assert parse("--master", "spark://m:7077", "--spark-conf", "a=b").session_settings() == {
        "spark.master": "spark://m:7077",
        "a": "b",
    }


def test_unknown_time_zone_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        flights_daily.JOB.parse([*REQUIRED, "--parquet", "/p", "--time-zone", "New York"])
    assert exit_.value.code == 2
    assert "expected a time zone such as America/New_York, not 'New York'" in capsys.readouterr().err


@pytest.mark.parametrize("flag", REQUIRED[::2])
def test_missing_required_flags_are_reported(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    present = [
        part
        for name, value in zip(REQUIRED[::2], REQUIRED[1::2], strict=True)
        if name != flag
        for part in (name, value)
    ]
    with pytest.raises(SystemExit) as exit_:
        flights_daily.JOB.main([*present, "--parquet", "/p"])
    assert exit_.value.code == 2
    assert flag in capsys.readouterr().err


def test_defaults_are_applied() -> None:
    parameters = parse()
    assert parameters.app_id == "some_job"
    assert parameters.checkpoint == "/c"
    assert parameters.trigger == {"processingTime": "1 second"}
    assert parameters.watermark == "1 hour"
    assert parameters.source_options() == {
        "kafka.bootstrap.servers": "b:1",
        "kafka.fetch.max.wait.ms": "10",
        "kafka.max.poll.records": "10000",
        "subscribe": "in",
        "startingOffsets": "earliest",
        "groupIdPrefix": "some_job",
    }
    assert parameters.sink_options() == {
        "kafka.bootstrap.servers": "b:1",
        "kafka.batch.size": "131072",
        "kafka.max.request.size": "2097152",
        "kafka.linger.ms": "5",
        "topic": "out",
        "includeHeaders": "true",
    }


def test_options_are_passed_to_source_and_sink() -> None:
    parameters = parse(
        "--kafka-option", "compression.type=zstd", "--kafka-option", "sasl.jaas.config=a=b", "--app-id", "mine",
        "--kafka-option", "linger.ms=0", "--kafka-option", "batch.size=1000", "--kafka-option", "fetch.max.wait.ms=500",
        "--kafka-option", "max.poll.records=7",
        "--max-offsets-per-trigger", "7", "--trigger", "availableNow", "--starting-offsets", '{"in":{"0":3}}',
    )  # fmt: skip
    assert parameters.source_options() == {
        "kafka.bootstrap.servers": "b:1",
        "kafka.compression.type": "zstd",
        "kafka.fetch.max.wait.ms": "500",
        "kafka.max.poll.records": "7",
        "kafka.sasl.jaas.config": "a=b",
        "kafka.linger.ms": "0",
        "kafka.batch.size": "1000",
        "subscribe": "in",
        "startingOffsets": '{"in":{"0":3}}',
        "groupIdPrefix": "mine",
        "maxOffsetsPerTrigger": "7",
    }
    assert parameters.sink_options()["kafka.compression.type"] == "zstd"
    assert parameters.sink_options()["kafka.linger.ms"] == "0"
    assert parameters.sink_options()["kafka.batch.size"] == "1000"
    assert parameters.trigger == {"availableNow": True}


def test_each_source_begins_at_the_offsets_of_its_own_topics() -> None:
    parameters = parse("--starting-offsets", '{"in":{"0":3},"side":{"0":4}}')
    starts = [parameters.source_options(topic)["startingOffsets"] for topic in (None, "side", "other")]
    assert starts == ['{"in":{"0":3}}', '{"side":{"0":4}}', "earliest"]
    assert parse("--starting-offsets", "latest").source_options("other")["startingOffsets"] == "latest"


def test_sink_waits_for_no_more_records_if_its_delivery_timeout_is_given() -> None:
    """A timeout that equals request.timeout.ms would be too short with linger.ms."""
    options = parse(
        "--kafka-option", "request.timeout.ms=2000", "--kafka-option", "delivery.timeout.ms=2000"
    ).sink_options()
    assert "kafka.linger.ms" not in options


def test_kafka_option_wins_over_the_file_wherever_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        '# a login\nbootstrap.servers=other:9\nsecurity.protocol = SASL_SSL\nsasl.jaas.config=m \\\n  p="a=b";\n'
    )
    flags = ["--kafka-config", str(file)]
    option = ["--kafka-option", "security.protocol=SASL_PLAINTEXT"]
    for arguments in (flags + option, option + flags):
        options = parse(*arguments).source_options()
        assert options["kafka.security.protocol"] == "SASL_PLAINTEXT"
        assert options["kafka.sasl.jaas.config"] == 'm p="a=b";'
        assert options["kafka.bootstrap.servers"] == "b:1"
    assert parse(*flags).sink_options()["kafka.security.protocol"] == "SASL_SSL"
    assert parse().kafka_option == {}


def test_every_kind_of_program_reads_a_file_of_settings(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("acks=1")
    flags = reset.parse(["app", *REQUIRED, "--kafka-config", str(file)])
    assert flags.kafka_option == {"acks": "1"}
    parameters = mirror.JOB.parse([*REQUIRED, "--target-servers", "c:1", "--target-config", str(file)])
    assert isinstance(parameters, mirror.MirrorParameters)
    assert (parameters.kafka_option, parameters.target_option) == ({}, {"acks": "1"})


def test_file_of_settings_that_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing, broken = tmp_path / "none.properties", tmp_path / "broken.properties"
    broken.write_text("acks=\\u12")
    for file, reason in ((missing, "No such file or directory"), (broken, "a \\u escape needs four")):
        with pytest.raises(SystemExit) as exit_:
            parse("--kafka-config", str(file))
        assert exit_.value.code == 2
        assert f"argument --kafka-config: cannot read {file}: {reason}" in capsys.readouterr().err
