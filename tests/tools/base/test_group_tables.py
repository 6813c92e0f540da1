"""Tables of groups, with the columns of Kafka's tool."""

from tools.base.group_tables import DELETED_OFFSETS, NEW_OFFSETS, OFFSETS, STATES, listed_columns, member_columns, table


def test_offsets_are_printed_as_by_kafka() -> None:
    member = "inst-9-f744d725-63fd-461e-a657-16c97ca42495"
    rows = [("live-group", "events", "0", "2175", "2175", "0", member, "/127.0.0.1", "live-s")]
    assert table(OFFSETS, rows) == [
        (
            "GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             "
            "CONSUMER-ID                                 HOST            CLIENT-ID"
        ),
        (
            "live-group      events          0          2175            2175            0               "
            "inst-9-f744d725-63fd-461e-a657-16c97ca42495 /127.0.0.1      live-s"
        ),
    ]


def test_offsets_without_members_are_printed_as_by_kafka() -> None:
    assert table(OFFSETS, [("app-group", "events", "0", "2175", "2175", "0", "-", "-", "-")]) == [
        (
            "GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             "
            "CONSUMER-ID     HOST            CLIENT-ID"
        ),
        (
            "app-group       events          0          2175            2175            0               "
            "-               -               -"
        ),
    ]


def test_members_are_printed_as_by_kafka() -> None:
    columns = member_columns(with_instance_id=True, with_assignment=True)
    member = "live-1-737b0aaa-d972-48f8-adff-9aa212c939c6"
    assert table(columns, [("live-group", member, "", "/127.0.0.1", "live-1", "1", "(2)")]) == [
        (
            "GROUP           CONSUMER-ID                                 GROUP-INSTANCE-ID HOST            "
            "CLIENT-ID       #PARTITIONS     ASSIGNMENT"
        ),
        (
            "live-group      live-1-737b0aaa-d972-48f8-adff-9aa212c939c6                   /127.0.0.1      "
            "live-1          1               (2)"
        ),
    ]


def test_missing_members_are_printed_as_by_kafka() -> None:
    columns = member_columns(with_instance_id=False, with_assignment=False)
    assert table(columns, []) == ["GROUP           CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS     "]


def test_states_are_printed_as_by_kafka() -> None:
    rows = [("live-group", "127.0.0.1:13192  (1)", "range", "Stable", "3")]
    assert table(STATES, rows) == [
        "GROUP                     COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE           #MEMBERS",
        "live-group                127.0.0.1:13192  (1)      range                Stable          3",
    ]


def test_listed_groups_are_printed_as_by_kafka() -> None:
    assert table(listed_columns(["live-group"], ["STATE"]), [("live-group", "Stable")]) == [
        "GROUP                     STATE               ",
        "live-group                Stable              ",
    ]
    name = "kp-kafka-python-3.0.12-api0.10.1"
    assert table(listed_columns([name], ["TYPE"]), [(name, "Classic")])[1] == (
        "kp-kafka-python-3.0.12-api0.10.1           Classic             "
    )


def test_resets_and_deletions_are_printed_as_by_kafka() -> None:
    assert table(NEW_OFFSETS, [("cons-g", "wire", "0", "3")])[1] == (
        "cons-g                         wire                           0          3              "
    )
    assert table(DELETED_OFFSETS, [("wire", "1", "Successful")])[1] == (
        "wire                           1               Successful     "
    )
