"""JAAS configuration: the values of `sasl.jaas.config`, and files."""

import pytest

from base.jaas import JaasError, LoginModule, parse_entry, parse_file

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f"{PLAIN} required;", {}),
        (f"{PLAIN} Required username=alice password='a b';", {"username": "alice", "password": "a b"}),
        (f'{PLAIN} required user_alice="a\\"b\\\\c;=d" ;', {"user_alice": 'a"b\\c;=d'}),
        (f'{PLAIN} optional\n  a="1" // comment\n  /* b="2" */ c="3";', {"a": "1", "c": "3"}),
        (f'{PLAIN} required empty="";', {"empty": ""}),
        (
            rf'{PLAIN} required c="\a\b\f\n\r\t\v" o="\101\7\08\477\3777" other="\q\\\"\9";',
            {"c": "\a\b\f\n\r\t\v", "o": "A\x07\x008'7\xff7", "other": 'q\\"9'},
        ),
    ],
)
def test_options_are_read(text: str, options: dict[str, str]) -> None:
    assert parse_entry(text) == LoginModule(PLAIN, options)


@pytest.mark.parametrize(("text", "count"), [("  ", 0), ("a.B required; c.D sufficient x=1;", 2)])
def test_no_entry_and_several_are_rejected(text: str, count: int) -> None:
    with pytest.raises(JaasError, match=f"contains {count} login modules, should be 1 module"):
        parse_entry(text)


@pytest.mark.parametrize(
    "text",
    [
        "a.B",
        "a.B maybe;",
        "a.B required",
        "a.B required x;",
        "a.B required x=;",
        'a.B required x="1;',
        "a.B required = 1;",
    ],
)
def test_malformed_text_is_rejected_without_repeating_values(text: str) -> None:
    with pytest.raises(JaasError) as caught:
        parse_entry(text.replace("1", "SECRET"))
    assert "SECRET" not in str(caught.value)


def test_secrets_do_not_appear_in_a_representation() -> None:
    assert "secret" not in repr(parse_entry('a.B required password="secret";'))


def test_sections_of_a_file_are_read() -> None:
    text = """
        internal.KafkaServer { a.B required x="1"; };
        KafkaServer {
            c.D required;
            e.F optional y="}";
        };
    """
    sections = parse_file(text)
    assert {name: [entry.name for entry in entries] for name, entries in sections.items()} == {
        "internal.KafkaServer": ["a.B"],
        "KafkaServer": ["c.D", "e.F"],
    }
    for broken in ("KafkaServer", "KafkaServer {", "KafkaServer { a.B required; }", "{ };"):
        with pytest.raises(JaasError):
            parse_file(broken)
