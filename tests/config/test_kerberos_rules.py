"""`sasl.kerberos.principal.to.local.rules`."""

import pytest

from config.kerberos_rules import local_name, parse_kerberos_rules
from config.principal_rules import NoRuleApplies

REALM = "EXAMPLE.COM"


@pytest.mark.parametrize(
    ("rules", "principal", "user"),
    [
        ([], "alice@EXAMPLE.COM", "alice"),
        (["DEFAULT"], "kafka/host.example.com@EXAMPLE.COM", "kafka"),
        (["RULE:[1:$1@$0](.*@OTHER.ORG)s/@.*//"], "bob@OTHER.ORG", "bob"),
        (["RULE:[1:$1@$0](.*@OTHER.ORG)s/@.*//", "DEFAULT"], "bob@EXAMPLE.COM", "bob"),
        (["RULE:[2:$1]"], "kafka/host@EXAMPLE.COM", "kafka"),
        (["RULE:[2:$1-$2](kafka-.*)s/^kafka-(.*)$/$1/U"], "kafka/host@EXAMPLE.COM", "HOST"),
        (["RULE:[1:$1]/L"], "ALICE@EXAMPLE.COM", "alice"),
        (["RULE:[1:$1]s/a/b/"], "aa@EXAMPLE.COM", "ba"),
        (["RULE:[1:$1]s/a/b/g"], "aa@EXAMPLE.COM", "bb"),
        (["RULE:[1:$1](other)", "RULE:[2:$1]", "RULE:[1:user-$1]"], "alice@EXAMPLE.COM", "user-alice"),
    ],
)
def test_first_rule_that_applies_wins(rules: list[str], principal: str, user: str) -> None:
    assert local_name(parse_kerberos_rules(rules), principal, REALM) == user


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        (["DEFAULT"], "alice@OTHER.ORG"),
        (["DEFAULT"], "alice"),
        (["DEFAULT"], r"alice\@EXAMPLE.COM@OTHER.ORG"),
        (["DEFAULT"], "a/b/c@EXAMPLE.COM"),
        (["RULE:[1:$1@$0]"], "alice@EXAMPLE.COM"),
        (["RULE:[1:$1](bob)"], "alice@EXAMPLE.COM"),
        (["RULE:[1:$1]s/.*//"], "alice@EXAMPLE.COM"),
    ],
)
def test_principals_without_a_simple_name_are_rejected(rules: list[str], principal: str) -> None:
    with pytest.raises(NoRuleApplies):
        local_name(parse_kerberos_rules(rules), principal, REALM)


@pytest.mark.parametrize(
    "rule", ["nonsense", "RULE:[1:$2]", "RULE:[3:$1]", "RULE:[0:x]", "RULE:[1:$1](()", "RULE:[1:$1]x", "DEFAULT/L"]
)
def test_invalid_rules_are_rejected(rule: str) -> None:
    with pytest.raises(ValueError, match="Invalid rule"):
        parse_kerberos_rules([rule])
