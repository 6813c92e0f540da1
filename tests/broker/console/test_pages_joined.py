"""The scripts of the page as one: what is joined, what cannot be, and the size of the first page."""

from __future__ import annotations

import gzip

import pytest

from broker.console.pages import joined, page_files

FIRST_PAGE_BYTES_MAX = 150 * 1024
FIRST_PAGE_FILES_MAX = 4
"""The other two of the six requests of the first page are for its JSON."""


def test_modules_are_joined_in_the_order_of_their_imports() -> None:
    modules = {
        "app.js": 'import { one, two } from "./a.js";\nimport { both } from "./b.js";\nboth(one, two);\n',
        "a.js": "export const one = 1;\nexport async function two() {}\nconst own = 3;\n",
        "b.js": 'import { one } from "./a.js";\nexport class Both {}\nexport function both() {}\n',
        "unused.js": "export default 1;\n",
    }
    assert joined(modules, "app.js").replace("\n\n", "\n") == (
        "const modules = {};\n"
        'modules["a.js"] = (() => {\nconst one = 1;\nasync function two() {}\nconst own = 3;\n'
        "return { one, two };\n})();\n"
        'modules["b.js"] = (() => {\nconst { one } = modules["a.js"];\nclass Both {}\nfunction both() {}\n'
        "return { Both, both };\n})();\n"
        'modules["app.js"] = (() => {\nconst { one, two } = modules["a.js"];\nconst { both } = modules["b.js"];\n'
        "both(one, two);\nreturn {  };\n})();\n"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('import { x } from "./none.js";\n', "app.js imports none.js, which does not exist"),
        ('import { x } from "./app.js";\n', "app.js and app.js import each other"),
        ('import x from "./app.js";\n', "cannot be joined"),
        ("export default 1;\n", "'export default 1;' cannot be joined"),
    ],
)
def test_what_cannot_be_joined_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        joined({"app.js": text}, "app.js")


def test_the_first_page_is_small() -> None:
    files = page_files()
    assert len(files) <= FIRST_PAGE_FILES_MAX
    assert sum(len(gzip.compress(content)) for content in files.values()) < FIRST_PAGE_BYTES_MAX / 2
