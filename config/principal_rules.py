"""`ssl.principal.mapping.rules`: from the name of a certificate to the name of a principal.

Rules are comma-separated, and the first that applies wins:

    DEFAULT                     the whole name
    RULE:pattern/replacement/   the replacement, if the pattern matches the whole name; `$1` is a group
    RULE:pattern/replacement/L  the same in lower case; U: upper case

A slash in a pattern is written `\\/`. Owns the syntax and the decision. Must not know certificates.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<value>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*(?:,\s*|$)"
)
_REFERENCE = re.compile(r"\\(?P<literal>.)|\$(?P<group>[0-9])", re.DOTALL)


class NoRuleApplies(ValueError):  # noqa: N818 - the name states the condition
    """No rule applies to a name; its owner is not let in."""


class PrincipalRule(NamedTuple):
    """One rule. `pattern` None: the whole name."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        """Return the principal's name, or None if the rule does not apply."""
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None

        principal = expanded(match, self.replacement)
        return {"L": principal.lower, "U": principal.upper}.get(self.case, lambda: principal)()


def expanded(match: re.Match[str], template: str) -> str:
    """Return a replacement as Java writes it: `$1` is a group of the match, and a backslash quotes a character."""

    def value(reference: re.Match[str]) -> str:
        if reference["literal"] is not None:
            return reference["literal"]
        number = int(reference["group"])
        return (match[number] or "") if number <= match.re.groups else reference[0]

    return _REFERENCE.sub(value, template)


def parse_rules(text: str) -> list[PrincipalRule]:
    """Return the rules. Raises ValueError."""
    rules = []
    position = 0
    while position < len(text.rstrip()):
        match = _RULE.match(text, position)
        if match is None:
            raise ValueError(f"Invalid rule: `{text[position:].strip()}`")
        if match["default"] is not None:
            rules.append(PrincipalRule(None, "", ""))
        else:
            try:
                pattern = re.compile(match["pattern"])
            except re.error as error:
                raise ValueError(f"Invalid pattern `{match['pattern']}`: {error}") from None
            rules.append(PrincipalRule(pattern, match["value"], match["case"]))
        position = match.end()
    return rules or [PrincipalRule(None, "", "")]


def principal_name(rules: Sequence[PrincipalRule], name: str) -> str:
    """Return what the first rule makes of a certificate's name. Raises NoRuleApplies."""
    for rule in rules:
        principal = rule.apply(name)
        if principal is not None:
            return principal
    raise NoRuleApplies(f"No rules apply to {name}")
