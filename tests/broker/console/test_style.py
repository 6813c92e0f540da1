"""The colours of the style sheet: every text on every ground has the contrast of WCAG 2.1 AA, in both schemes.

The pairs are those that the rules of the sheet combine. The tests of pages measure what a browser makes of them.
"""

from __future__ import annotations

import re
from importlib import resources

import pytest

SHEET = resources.files("broker.console").joinpath("static", "console.css").read_text()
SCHEMES = {
    "light": r":root \{(.*?)\}",
    "dark by preference": r':root:not\(\[data-theme="light"\]\) \{(.*?)\}',
    "dark by choice": r':root\[data-theme="dark"\] \{(.*?)\}',
}
GROUNDS = ("ground", "surface", "raised")
TEXTS = [
    *((text, ground) for text in ("text", "muted", "accent") for ground in GROUNDS),
    *((text, ground) for text in ("good", "bad", "code") for ground in ("surface", "raised")),
    *((kind, f"{kind}-ground") for kind in ("accent", "good", "warn", "bad")),
    ("on-accent", "accent"),
    ("surface", "text"),  # the message at the corner
]
GRAPHICS = [
    *((f"series-{number}", "surface") for number in range(1, 7)),
    ("muted", "surface"),  # the borders of fields
    ("accent", "raised"),  # bars
    ("warn", "raised"),
    ("bad", "raised"),
    *(("accent", ground) for ground in GROUNDS),  # the outline of the focus
]
TEXT_MIN, GRAPHIC_MIN = 4.5, 3.0


def colours(scheme: str) -> dict[str, str]:
    (block,) = re.findall(SCHEMES[scheme], SHEET, re.DOTALL)
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))


def luminance(colour: str) -> float:
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def test_the_contrast_of_black_on_white_is_21() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_texts_and_graphics_have_contrast(scheme: str) -> None:
    known = colours(scheme)
    assert {name for pair in (*TEXTS, *GRAPHICS) for name in pair} <= known.keys() | {"line"}
    faint = {pair: contrast(known[pair[0]], known[pair[1]]) for pair in TEXTS}
    assert {pair: value for pair, value in faint.items() if value < TEXT_MIN} == {}
    faint = {pair: contrast(known[pair[0]], known[pair[1]]) for pair in GRAPHICS}
    assert {pair: value for pair, value in faint.items() if value < GRAPHIC_MIN} == {}


def test_both_ways_to_the_dark_scheme_are_the_same() -> None:
    assert colours("dark by preference") == colours("dark by choice")


def test_every_colour_has_a_name() -> None:
    """A colour outside the schemes would be the same in both; shadows and the veil behind dialogs are."""
    rules = SHEET[SHEET.index("* { box-sizing") :]
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b(?![^{]*\{)", re.sub(r"(?m)^#\w+[^{]*", "", rules)) == []
