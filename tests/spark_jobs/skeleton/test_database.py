"""Messages name a database without its logins, tables have one name each, and a text is a literal of its database."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from spark_jobs.skeleton.database import Database, qualified_name, with_suffix, without_login

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


@pytest.mark.parametrize("size_max", [63, 128, 0])
@pytest.mark.parametrize("schema", ["", "warehouse.", "db.warehouse."])
def test_a_table_with_a_suffix_keeps_it_in_the_length_that_the_database_allows(schema: str, size_max: int) -> None:
    longest = "n" * (size_max or 1000)
    for length in range(1, len(longest) + 1):
        name = with_suffix(f"{schema}{longest[:length]}", "_POSITIONS", size_max)
        assert name.startswith(f"{schema}n")
        assert name.endswith("_POSITIONS")
        if size_max == 0 or length + len("_POSITIONS") <= size_max:
            assert name == f"{schema}{longest[:length]}_POSITIONS"
        else:
            assert len(name) == len(schema) + size_max


def test_tables_that_differ_at_the_end_of_a_long_name_have_different_tables_beside_them() -> None:
    table = "customer_lifetime_value_snapshots_by_region_daily_and_currency"
    eur, usd = (with_suffix(f"{table}{currency}", "_POSITIONS", 63) for currency in ("_eur", "_usd"))
    assert eur != usd
    assert eur.lower() == with_suffix(f"{table}_EUR", "_POSITIONS", 63).lower()


@pytest.mark.parametrize(
    ("product", "sql_mode", "expected"),
    [
        ("PostgreSQL", None, r"'it''s C:\'"),
        ("MySQL", "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES", r"'it''s C:\\'"),
        ("MariaDB", "", r"'it''s C:\\'"),
        ("MySQL", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES", r"'it''s C:\'"),
    ],
)
def test_a_literal_ends_where_its_text_ends(
    product: str, sql_mode: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = MagicMock()
    connection.getMetaData().getDatabaseProductName.return_value = product
    modes = {"SELECT @@sql_mode": SimpleNamespace(next=lambda: True, getString=lambda _: sql_mode)}
    connection.createStatement().executeQuery = modes.__getitem__
    monkeypatch.setattr(Database, "_connect", lambda _: connection)
    assert Database(MagicMock(), "jdbc:mysql://h/db").literal("it's C:\\") == expected
