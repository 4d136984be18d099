"""opensm's files: what is read back is what was written, and what others wrote stays as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.devices.base import DeviceError
from fabricd.devices.opensm import options, partitions, qos_policy, tables, weights
from fabricd.devices.opensm.conf import get_option, set_option

KEYS = st.sampled_from(
    ["qos", "qos_vlarb_low", "qos_swe_vlarb_low", "cc_ca_cong_setting_ccti_increase 3", "sweep_interval"]
)
VALUES = st.from_regex(r"[!-\"$-~][!-~]{0,20}", fullmatch=True).filter(
    lambda text: "#" not in text and text != "(null)"
)
GUIDS = st.integers(1, (1 << 64) - 1)


@given(st.lists(st.tuples(KEYS, VALUES)), KEYS, VALUES)
def test_an_option_set_is_the_option_got_and_the_rest_stays(lines: list[tuple[str, str]], key: str, value: str) -> None:
    text = "# kept\n" + "".join(f"{name} {held}\n" for name, held in lines)
    fresh = set_option(text, key, value)
    assert get_option(fresh, key) == value
    assert fresh.startswith("# kept\n")
    for other in {name for name, _ in lines} - {key}:
        assert get_option(fresh, other) == get_option(text, other)
    assert get_option(set_option(fresh, key, None), key) is None


def test_options_are_told_apart_by_whole_words_and_the_last_counts() -> None:
    text = "qos TRUE\nqos_vlarb_low 0:1\n#qos_vlarb_low 9:9\nqos_vlarb_low 0:2 # the last\nhop_weights_file (null)"
    assert get_option(text, "qos") == "TRUE"
    assert get_option(text, "qos_vlarb_low") == "0:2"
    assert get_option(text, "hop_weights_file") is None
    assert get_option("cc_ca_cong_setting_ccti_timer 0 150\n", "cc_ca_cong_setting_ccti_timer 0") == "150"
    for bad in ("", " x", "a\nb", "# x", "ü"):
        with pytest.raises(DeviceError):
            set_option(text, "qos", bad)


def test_kinds_of_options() -> None:
    assert options.kind_of_option("qos_swe_vlarb_low") == "updatable"
    assert options.kind_of_option("cc_ca_cong_setting_ccti_increase 15") == "updatable"
    assert options.kind_of_option("cc_ca_cong_setting_ccti_increase 16") == "unknown"
    assert options.kind_of_option("ar_sl_mask") == "nvidia"
    assert options.kind_of_option("lfts_file") == "restart"
    assert options.kind_of_option("sm_key") == "secret"
    assert not options.UPDATABLE & options.RESTART_ONLY


@given(
    st.lists(st.tuples(GUIDS, st.integers(1, 64), st.integers(1, 255))),
    GUIDS,
    st.integers(1, 64),
    st.builds(weights.Weight, st.integers(1, 255), st.none() | st.integers(0, 4000)),
)
def test_hop_weights(rows: list[tuple[int, int, int]], guid: int, port: int, weight: weights.Weight) -> None:
    text = "".join(f"0x{g:x} {p}: {w}\n" for g, p, w in rows)
    fresh = weights.set_weight(text, guid, port, weight)
    assert weights.get_weight(fresh, guid, port) == weight
    for g, p, _ in rows:
        if (g, p) != (guid, port):
            assert weights.get_weight(fresh, g, p) == weights.get_weight(text, g, p)
    assert weights.get_weight(weights.set_weight(fresh, guid, port, None), guid, port) is None


PARTITIONS = """# by hand
Default=0x7fff, ipoib : ALL=full, SELF=full ;
storage=0x8001, ipoib,
   sl=2 : 0x0002c90300a1b2c3=full, # rack 1
   0x0002c90300a1b2c4=limited ;
"""


def test_partitions_of_several_lines_are_one_definition() -> None:
    found = partitions.get_partition(PARTITIONS, 0x8001)
    assert found == "storage=0x8001, ipoib, sl=2 : 0x0002c90300a1b2c3=full, 0x0002c90300a1b2c4=limited"
    assert partitions.get_partition(PARTITIONS, 0x7FFF) == "Default=0x7fff, ipoib : ALL=full, SELF=full"
    moved = found.replace("sl=2", "sl=5")
    fresh = partitions.set_partition(PARTITIONS, 0x8001, moved)
    assert partitions.get_partition(fresh, 0x8001) == moved
    assert "# by hand" in fresh and partitions.get_partition(fresh, 0x7FFF)
    assert partitions.get_partition(partitions.set_partition(fresh, 0x8001, found), 0x8001) == found
    added = partitions.set_partition(PARTITIONS, 0x8009, "gpu=0x8009, ipoib, sl=1 : ALL=full")
    assert partitions.set_partition(added, 0x8009, None) == PARTITIONS


@pytest.mark.parametrize(
    "bad",
    [
        "gpu=0x8009", "gpu=0x8008 : ALL=full", "gpu=0x8009, sl=16 : ALL=full", "gpu=0x8009, rate=fast : ALL", "gpu=0x8009 : ALL=no",
        "g pu=0x8009 : ALL", "gpu=0x8009,  ipoib : ALL", "gpu=0x8009, x : ALL", "gpu=0x8009 : ", "gpu=0x8009 : ALL;b=0x1 : ALL",
    ],
)  # fmt: skip
def test_definitions_opensm_would_stumble_over(bad: str) -> None:
    with pytest.raises(DeviceError):
        partitions.set_partition(PARTITIONS, 0x8009, bad)


POLICY = """port-groups
    port-group
        name: theirs
        port-guid: 0x6000000000001041
    end-port-group
end-port-groups
qos-levels
    qos-level
        name: DEFAULT
        sl: 0
    end-qos-level
end-qos-levels
qos-match-rules
    qos-match-rule
        destination: theirs
        qos-level-name: DEFAULT
    end-qos-match-rule
end-qos-match-rules
"""


@given(
    st.sampled_from(["", POLICY]),
    st.from_regex(r"[a-z][a-z0-9-]{0,10}", fullmatch=True).filter(lambda name: name != "theirs"),
    st.integers(0, 15),
    st.lists(GUIDS, max_size=4),
    st.lists(GUIDS, max_size=4),
)
def test_path_rules(text: str, name: str, sl: int, source: list[int], destination: list[int]) -> None:
    rule = {
        "sl": sl,
        "source": [f"0x{guid:016x}" for guid in source],
        "destination": [f"0x{guid:016x}" for guid in destination],
    }
    if not source and not destination:
        with pytest.raises(DeviceError, match="every path"):
            qos_policy.set_rule(text, name, rule)
        return
    fresh = qos_policy.set_rule(text, name, rule)
    assert qos_policy.get_rule(fresh, name) == rule
    assert qos_policy.get_rule(fresh, name + "x") is None
    if text:
        assert fresh.index(f"qos-level-name: {name}") < fresh.index("qos-level-name: DEFAULT")
        assert qos_policy.set_rule(fresh, name, None) == text
    assert qos_policy.set_rule(fresh, name, rule) == fresh


def test_a_rule_edited_by_hand_is_said() -> None:
    fresh = qos_policy.set_rule(POLICY, "mine", {"sl": 3, "source": ["0x1"], "destination": []})
    with pytest.raises(DeviceError, match="edited"):
        qos_policy.get_rule(
            fresh.replace("qos-level-name: mine", "qos-level-name: other").replace("use: mine", "use: x"), "mine"
        )
    with pytest.raises(DeviceError, match="not closed"):
        qos_policy.set_rule(
            POLICY.replace("end-qos-levels", ""), "mine", {"sl": 3, "source": ["0x1"], "destination": []}
        )


def test_tables_hold_all_switches_or_are_not_written() -> None:
    present = {1: {5: 7, 6: 255}, 2: {5: 1}}
    text = tables.render(present, {1: 11, 2: 12}, {(1, 5): (8, 7)})
    assert "0x0005 007\n" in text and "0x0006" not in text and text.count("Unicast lids") == 2
    assert tables.read_moves(text) == {(1, 5): (8, 7)}
    assert tables.read_moves(None) == {}
    for broken in ({}, {1: {}}):
        with pytest.raises(DeviceError):
            tables.render(broken, {1: 11}, {})
    with pytest.raises(DeviceError, match="somebody else"):
        tables.read_moves("Unicast lids [0x0-0x1] of switch Lid 1 guid 0x1 (x):\n")


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 6)), max_size=20))
def test_moves_taken_back_leave_nothing(steps: list[tuple[int, int, int]]) -> None:
    """Whatever order destinations move in, putting each back to its first port empties the list."""
    held: dict[tuple[int, int], int] = {}
    first: dict[tuple[int, int], int] = {}
    moves: tables.Moves = {}
    for guid, lid, port in steps:
        before = held.get((guid, lid), 9)
        first.setdefault((guid, lid), before)
        moves = tables.move(moves, guid, {lid: (before, port)})
        held[guid, lid] = port
    assert {key: now for key, (_, now) in moves.items()} == {k: p for k, p in held.items() if p != first[k]}
    for (guid, lid), port in held.items():
        moves = tables.move(moves, guid, {lid: (port, first[guid, lid])})
    assert moves == {}
