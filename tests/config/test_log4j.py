"""What is understood of a log4j.properties file."""

from __future__ import annotations

from pathlib import Path

import pytest

from base import properties
from config.log4j import LoggerPlan, date_format, pattern_parts, read_plan

SHIPPED = Path(__file__).resolve().parents[2] / "config" / "log4j.properties"


def test_the_shipped_file_has_kafkas_files_and_no_warning() -> None:
    plan = read_plan(properties.load(SHIPPED), {"kafka.logs.dir": "/logs"})
    assert plan.warnings == []
    files = {name: appender.file for name, appender in plan.appenders.items() if appender.file}
    assert set(files.values()) == {
        f"/logs/{name}.log"
        for name in (
            "server",
            "controller",
            "state-change",
            "kafka-request",
            "kafka-authorizer",
            "log-cleaner",
            "quota",
        )
    }
    assert {appender.date_suffix for appender in plan.appenders.values() if appender.file} == {".%Y-%m-%d-%H"}
    assert plan.loggers[""].appenders == ("console", "server")
    assert plan.loggers["kafka.request.logger"] == LoggerPlan(30, ("request",), is_additive=False)


def test_levels_additivity_and_appenders() -> None:
    text = """
    dir=/tmp
    log4j.rootLogger=DEBUG, A
    log4j.logger.a.b=off
    log4j.logger.c=INHERITED, B
    log4j.additivity.c=false
    log4j.appender.A=org.apache.log4j.ConsoleAppender
    log4j.appender.A.Threshold=ERROR
    log4j.appender.B=org.apache.log4j.RollingFileAppender
    log4j.appender.B.File=${dir}/${unknown}b.log
    log4j.appender.B.MaxFileSize=2KB
    log4j.appender.B.MaxBackupIndex=3
    """
    plan = read_plan(properties.parse(text), {})
    assert plan.warnings == []
    assert plan.loggers == {
        "": LoggerPlan(10, ("A",)),
        "a.b": LoggerPlan(60),
        "c": LoggerPlan(None, ("B",), is_additive=False),
    }
    assert plan.appenders["A"].threshold == 40
    file = plan.appenders["B"]
    assert (file.file, file.size_max, file.backup_count) == ("/tmp/b.log", 2048, 3)


@pytest.mark.parametrize(
    ("line", "warning"),
    [
        ("log4j.rootLogger=LOUD", "LOUD is no level"),
        ("log4j.rootLogger=INFO, X", "the logger root names the appender X"),
        ("log4j.appender.A=org.apache.log4j.net.SMTPAppender", "its lines go to the console"),
        ("log4j.appender.A.filter.1=x\nlog4j.appender.A=a.ConsoleAppender", "A.filter.1 is not understood"),
        (
            "log4j.appender.A.DatePattern=www\nlog4j.appender.A.File=f\nlog4j.appender.A=a.FileAppender",
            "DatePattern=www",
        ),
        ("log4j.appender.A.layout.ConversionPattern=%Z\nlog4j.appender.A=a.ConsoleAppender", "ConversionPattern=%Z"),
        ("log4j.appender.A=a.FileAppender", "has no File"),
        ("log4j.debug=true", "log4j.debug is not understood"),
    ],
)
def test_unknown_part_gives_a_warning(line: str, warning: str) -> None:
    (found,) = [each for each in read_plan(properties.parse(line), {}).warnings if warning in each]
    assert found


def test_date_patterns_of_java() -> None:
    assert date_format("'.'yyyy-MM-dd-HH") == ".%Y-%m-%d-%H"
    assert date_format("'.100%'yyyy") == ".100%%%Y"
    assert date_format("G") is None


def test_conversion_pattern_is_split_into_its_parts() -> None:
    assert list(pattern_parts("[%d{ISO8601}] %-5p %c{1}%n")) == [
        ("", "[", ""),
        ("d", "", "ISO8601"),
        ("", "] ", ""),
        ("p", "-5", ""),
        ("", " ", ""),
        ("c", "", "1"),
        ("n", "", ""),
    ]
