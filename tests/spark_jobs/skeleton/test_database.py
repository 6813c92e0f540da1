"""Messages name a database without its logins, and tables have one name each."""

import pytest

from spark_jobs.skeleton.database import qualified_name, without_login

URLS = {
    "jdbc:postgresql://h/db?user=a@b&password=secret": "jdbc:postgresql://h/db",
    "jdbc:mysql://root:secret@h:3306/db": "jdbc:mysql://h:3306/db",
    "jdbc:mysql://root:se/cr:et@h/db": "jdbc:mysql://h/db",
    "jdbc:mysql://(host=h,user=root,password=secret)/db": "jdbc:mysql://",
    "jdbc:mysql://address=(host=h)(password=secret)/db": "jdbc:mysql://address=",
    "jdbc:oracle:thin:scott/secret@h:1521/x": "jdbc:oracle:thin:h:1521/x",
    "jdbc:oracle:thin:scott/s@cret@//h:1521/x": "jdbc:oracle:thin://h:1521/x",
    "jdbc:oracle:thin:@//h:1521/x": "jdbc:oracle:thin:@//h:1521/x",
    "jdbc:sqlserver://h:1433;user=sa;password=secret": "jdbc:sqlserver://h:1433",
    "jdbc:db2://h:50000/db:user=x;password=secret;": "jdbc:db2://h:50000/db",
    "jdbc:derby:/data/warehouse;create=true": "jdbc:derby:/data/warehouse",
}


@pytest.mark.parametrize("url", URLS)
def test_a_url_is_named_without_user_and_password(url: str) -> None:
    assert without_login(url) == URLS[url]


@pytest.mark.parametrize(
    ("table", "place", "expected"),
    [
        ("Items", ["shop", "public"], "shop.public.items"),
        ("other.Items", ["shop", "public"], "shop.other.items"),
        ("db.other.Items", ["shop", "public"], "db.other.items"),
        ("Items", ["APP"], "app.items"),
        ("other.Items", ["APP"], "other.items"),
        ("Items", [], "items"),
        ("main.Items", [], "main.items"),
    ],
)
def test_a_table_is_qualified_by_what_its_name_leaves_out(table: str, place: list[str], expected: str) -> None:
    assert qualified_name(table, place) == expected
