"""`ssl.principal.mapping.rules`."""

import pytest

from config.principal_rules import NoRuleApplies, parse_rules, principal_name

NAME = "CN=kafka1.example.com,OU=Servers,O=Example,C=DE"


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("DEFAULT", NAME),
        ("", NAME),
        ("RULE:^CN=(.*?),OU=Servers.*$/$1/", "kafka1.example.com"),
        ("RULE:^CN=(.*?),OU=Servers.*$/$1/U", "KAFKA1.EXAMPLE.COM"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$2-$1-$3/L", "servers-kafka1.example.com-$3"),
        ("RULE:^nothing$/x/, RULE:^.*OU=([a-zA-Z]*),.*$/$1/L , DEFAULT", "servers"),
        ("RULE:^nothing$/x/,DEFAULT", NAME),
        (r"RULE:^CN=([a-z0-9]*)\..*$/a\/b\$1$1/", "a/b$1kafka1"),
        ("RULE:.*/constant/", "constant"),
    ],
)
def test_first_rule_that_applies_wins(rules: str, principal: str) -> None:
    assert principal_name(parse_rules(rules), NAME) == principal


def test_pattern_matches_the_whole_name() -> None:
    with pytest.raises(NoRuleApplies, match="No rules apply to CN=kafka1"):
        principal_name(parse_rules("RULE:CN=kafka1/x/"), NAME)


@pytest.mark.parametrize(
    "rules", ["nonsense", "RULE:a/b", "RULE:(/b/", "DEFAULT RULE:a/b/", "RULE:a/b/X", "DEFAULT;DEFAULT"]
)
def test_invalid_rules_are_rejected(rules: str) -> None:
    with pytest.raises(ValueError, match="Invalid"):
        parse_rules(rules)
