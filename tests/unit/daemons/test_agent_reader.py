"""The rules of reading a node, on generated trees: one bad thing costs only itself, missing is never 0."""

from __future__ import annotations

import errno
import time
from pathlib import Path
from typing import Any

import pytest

from fabricd.config.agent import AgentConfig
from fabricd.daemons.agent_reader import NodeReader
from fabricd.model.rejects import Rejects
from fabricd.model.sample import Flag
from tests.sysfs_tree import HW_COUNTERS, IB_COUNTERS, FaultyFiles, SysfsTree


class Node:
    """A reader over a tree, with faults."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.tree = SysfsTree(root)
        self.files = FaultyFiles()
        self.config = AgentConfig(sysfs=str(root), **settings)
        self.rejects = Rejects()
        self.reader = NodeReader(self.config, "n1", self.rejects, files=self.files)
        self.tick = 0

    def read(self) -> dict[str, Any]:
        self.reader.search_if_due()
        self.reader.read(self.tick, time.monotonic_ns())
        self.tick += 1
        return self.reader.to_json()

    def port(self, name: str = "mlx5_0", port: int = 0) -> dict[str, Any]:
        """The port's document after one more reading."""
        document = self.read()
        found: dict[str, Any] = next(d for d in document["devices"] if d["name"] == name)["ports"][port]
        return found

    def epoch(self, name: str = "mlx5_0") -> int:
        for stream in self.reader.streams:
            for number, planned in enumerate(stream.rows):
                if planned.row.device == name:
                    return stream.values[number * len(stream.columns) + 1]
        raise AssertionError(name)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "sys")


@pytest.mark.parametrize("driver", sorted(HW_COUNTERS))
def test_every_vendor(node: Node, driver: str) -> None:
    node.tree.device(f"{driver}_0", driver, link_layer="Unspecified" if driver == "efa" else "Ethernet")
    document = node.read()
    device = document["devices"][0]
    assert (device["driver"], device["fw_ver"], device["board_id"]) == (
        driver, "28.39.1002", "MT_0000000838",
    )  # fmt: skip
    port = device["ports"][0]
    assert (port["port"], port["state"], port["phys_state"], port["rate_gbps"]) == (1, "ACTIVE", "LinkUp", 400.0)
    by_raw = {entry["raw"]: entry for entry in port["counters"].values()}
    expected = {raw: value for raw, value in HW_COUNTERS[driver].items() if raw != "lifespan"}
    for raw, value in expected.items():
        assert by_raw[raw]["value"] == value, raw  # hardware counters are plain units, never words
        assert by_raw[raw]["source"] == "hw_counters"
    assert "lifespan" not in by_raw
    assert document["rejects"] == []


def test_words_become_bytes_once_whatever_the_width(node: Node) -> None:
    for number, rate in enumerate(
        ("2.5 Gb/sec (1X SDR)", "200 Gb/sec (2X NDR)", "800 Gb/sec (8X NDR)", "300 Gb/sec (12X EDR)")
    ):
        node.tree.device(
            f"mlx5_{number}",
            "mlx5_core",
            rate=rate,
            guid=number + 1,
            link_layer="InfiniBand",
            address=f"0000:0{number}:00.0",
        )
    rates = []
    for device in node.read()["devices"]:
        counters = device["ports"][0]["counters"]
        rates.append(device["ports"][0]["rate_gbps"])
        assert counters["port_transmit_data_bytes"]["value"] == 4 * IB_COUNTERS["port_xmit_data"]
        assert counters["port_receive_data_bytes"]["value"] == 4 * IB_COUNTERS["port_rcv_data"]
        assert counters["port_transmit_packets"]["value"] == IB_COUNTERS["port_xmit_packets"]
    assert rates == [2.5, 200.0, 800.0, 300.0]


def test_sticky_counters_at_their_top_are_saturated(node: Node) -> None:
    tops = {"port_xmit_wait": 2**32 - 1, "symbol_error": 65535, "link_downed": 255, "local_link_integrity_errors": 15}
    node.tree.device("mlx5_0", "mlx5_core", counters=IB_COUNTERS | tops)
    counters = node.port()["counters"]
    for name, top in (
        ("port_transmit_wait", 2**32 - 1),
        ("symbol_error", 65535),
        ("link_downed", 255),
        ("local_link_integrity_errors", 15),
    ):
        assert counters[name]["flags"] == ["saturated"], name
        assert counters[name]["value"] == top
    assert counters["link_error_recovery"]["flags"] == []


def test_a_wrapping_counter_at_its_top_is_only_a_number(node: Node) -> None:
    node.tree.device("mlx5_0", "mlx5_core", hw_counters={"out_of_sequence": 2**32 - 1, "packet_seq_err": 2**40})
    counters = node.port()["counters"]
    assert counters["rdma_receive_out_of_sequence"] | {"source": "", "raw": ""} == {
        "value": 2**32 - 1, "unit": "packets", "width": 32, "flags": [], "raw": "", "source": "",
    }  # fmt: skip
    assert counters["rdma_receive_sequence_naks"]["value"] == 2**40  # history on top of 32 bits


def test_narrow_data_counters_of_old_agents_stick_too(node: Node) -> None:
    old = {name: value for name, value in IB_COUNTERS.items() if "cast" not in name} | {"port_xmit_data": 2**32 - 1}
    node.tree.device("mlx5_0", "mlx5_core", counters=old)
    node.tree.device("mlx5_1", "mlx5_core", counters=IB_COUNTERS | {"port_xmit_data": 2**32 - 1}, guid=9)
    assert node.port("mlx5_0")["counters"]["port_transmit_data_bytes"]["flags"] == ["saturated"]
    assert node.port("mlx5_1")["counters"]["port_transmit_data_bytes"]["flags"] == []


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EACCES, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_refused_file_is_remembered_and_costs_only_itself(node: Node, code: int) -> None:
    node.tree.device("mlx5_0", "mlx5_core")
    path = node.tree.port_file("mlx5_0", "counters/port_xmit_wait")
    node.files.read_errno[path] = code
    for _ in range(5):
        counters = node.port()["counters"]
        assert counters["port_transmit_wait"]["value"] is None
        assert counters["port_transmit_wait"]["flags"] == ["not_observable"]
        assert counters["port_transmit_packets"]["value"] == IB_COUNTERS["port_xmit_packets"]
    assert node.files.reads[path] == 1
    assert node.rejects.counts == {"file_refused": 1}
    assert node.rejects.recent[0].what == errno.errorcode[code] and node.rejects.recent[0].where == path


def test_a_refusal_survives_a_new_layout_and_ends_with_the_device_or_a_reload(node: Node) -> None:
    node.tree.device("mlx5_0", "mlx5_core")
    path = node.tree.port_file("mlx5_0", "counters/symbol_error")
    node.files.read_errno[path] = errno.EINVAL
    node.read()
    node.tree.device("mlx5_1", "mlx5_core", guid=5)
    node.read()
    assert node.files.reads[path] == 1
    node.files.read_errno.clear()
    node.reader.forget_refusals()
    assert node.port()["counters"]["symbol_error"]["value"] == 0


def test_refused_at_open(node: Node) -> None:
    node.tree.device("mlx5_0", "mlx5_core")
    node.files.open_errno[node.tree.port_file("mlx5_0", "hw_counters/np_cnp_sent")] = errno.EACCES
    counters = node.port()["counters"]
    assert counters["rdma_transmit_cnp_packets"]["flags"] == ["not_observable"]
    assert counters["rdma_receive_cnp_packets"]["value"] == 3


def test_a_transient_error_is_tried_again_ever_more_rarely(node: Node) -> None:
    node.tree.device("mlx5_0", "mlx5_core")
    path = node.tree.port_file("mlx5_0", "counters/port_rcv_errors")
    node.files.read_errno[path] = errno.EIO
    for _ in range(40):
        entry = node.port()["counters"]["port_receive_errors"]
        assert entry["value"] is None and entry["flags"] == []
    assert 4 <= node.files.reads[path] <= 7
    node.files.read_errno.clear()
    for _ in range(64):
        if node.port()["counters"]["port_receive_errors"]["value"] == 0:
            break
    else:
        raise AssertionError("never read again")
    assert node.port()["counters"]["port_receive_errors"]["value"] == 0


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"garbage\n", "counter_text"),
        (b"", "counter_text"),
        (b"-1\n", "counter_text"),
        (b"1_000\n", "counter_text"),
        (b"0x10\n", "counter_text"),
        (b"12 34\n", "counter_text"),
        (b"\xff\xfe\n", "counter_text"),
        (b"9" * 40, "counter_text"),
        (b"99999999999999999999\n", "counter_range"),
    ],
)
def test_what_is_no_number_is_missing_and_counted(node: Node, text: bytes, kind: str) -> None:
    node.tree.device("mlx5_0", "mlx5_core")
    node.files.texts[node.tree.port_file("mlx5_0", "hw_counters/np_cnp_sent")] = text
    counters = node.port()["counters"]
    assert counters["rdma_transmit_cnp_packets"]["value"] is None
    assert counters["rdma_receive_cnp_packets"]["value"] == 3
    assert node.rejects.counts == {kind: 1}


@pytest.mark.parametrize("text", [b"4", b"4\n\0\0", b" 4 \n", b"00004\n"])
def test_odd_but_clear_numbers(node: Node, text: bytes) -> None:
    node.tree.device("mlx5_0", "mlx5_core")
    node.files.texts[node.tree.port_file("mlx5_0", "hw_counters/np_cnp_sent")] = text
    assert node.port()["counters"]["rdma_transmit_cnp_packets"]["value"] == 4


def test_no_performance_agent_in_old_words(node: Node) -> None:
    node.tree.device("mlx4_0", "mlx4_core")
    path = node.tree.port_file("mlx4_0", "counters/port_xmit_data")
    node.files.texts[path] = b"N/A (no PMA)\n"
    for _ in range(3):
        entry = node.port("mlx4_0")["counters"]["port_transmit_data_bytes"]
        assert entry["value"] is None and entry["flags"] == ["not_observable"]
    assert node.files.reads[path] == 1
    assert node.rejects.recent[0].what == "N/A (no PMA)"


def test_omni_path_zero_that_means_nothing(node: Node) -> None:
    node.tree.device("hfi1_0", "hfi1", link_layer="InfiniBand", rate="100 Gb/sec (4X EDR)")
    counters = node.port("hfi1_0")["counters"]
    for name in ("symbol_error", "vl15_dropped"):
        assert counters[name]["value"] is None and counters[name]["flags"] == ["not_observable"]
    assert counters["rxbufovfl"]["width"] == 32 and counters["rxbufovfl"]["value"] == 3


def test_lifespan_longer_than_the_interval(tmp_path: Path) -> None:
    node = Node(tmp_path / "sys", interval=1.0)
    node.tree.device("mlx5_0", "mlx5_core", hw_counters={"np_cnp_sent": 4, "lifespan": 2500})
    seen = []
    for _ in range(7):
        entry = node.port()["counters"]["rdma_transmit_cnp_packets"]
        seen.append((entry["value"], entry["flags"]))
    fresh, stale = (4, []), (None, ["stale"])
    assert seen == [fresh, stale, stale, fresh, stale, stale, fresh]
    assert node.files.reads[node.tree.port_file("mlx5_0", "hw_counters/np_cnp_sent")] == 3


@pytest.mark.parametrize("lifespan", [0, 10, 999, 1000])
def test_lifespan_within_the_interval(node: Node, lifespan: int) -> None:
    node.tree.device("mlx5_0", "mlx5_core", hw_counters={"np_cnp_sent": 4, "lifespan": lifespan})
    for _ in range(3):
        assert node.port()["counters"]["rdma_transmit_cnp_packets"]["value"] == 4


def test_hot_plug_and_unplug(node: Node) -> None:
    node.tree.device("mlx5_0", "mlx5_core", guid=1)
    assert [d["name"] for d in node.read()["devices"]] == ["mlx5_0"]
    node.tree.device("mlx5_1", "mlx5_core", guid=2)
    assert [d["name"] for d in node.read()["devices"]] == ["mlx5_0", "mlx5_1"]
    node.tree.remove("mlx5_0")
    assert [d["name"] for d in node.read()["devices"]] == ["mlx5_1"]
    assert {planned.row.device for stream in node.reader.streams for planned in stream.rows} == {"mlx5_1", ""}


def test_driver_reload_is_a_new_epoch(node: Node) -> None:
    node.tree.device("mlx5_0", "mlx5_core", guid=1)
    node.tree.device("mlx5_1", "mlx5_core", guid=2)
    node.read()
    first, other = node.epoch(), node.epoch("mlx5_1")
    node.read()
    assert node.epoch() == first
    (node.tree.root / "class/infiniband/mlx5_0").resolve().rename(node.tree.root / "old")  # keeps the old inode in use
    (node.tree.root / "class/infiniband/mlx5_0").unlink()
    node.tree.device("mlx5_0", "mlx5_core", guid=1)
    node.read()
    assert node.epoch() != first
    assert node.epoch("mlx5_1") == other


def test_enodev_ends_the_row_and_begins_an_epoch(node: Node) -> None:
    node.tree.device("mlx5_0", "mlx5_core", guid=1)
    node.tree.device("mlx5_1", "mlx5_core", guid=2)
    node.read()
    first = node.epoch()
    path = node.tree.port_file("mlx5_0", "counters/port_xmit_data")
    refused = node.tree.port_file("mlx5_0", "counters/symbol_error")
    node.files.read_errno |= {path: errno.ENODEV, refused: errno.EINVAL}
    document = node.read()
    values = {d["name"]: {e["value"] for e in d["ports"][0]["counters"].values()} for d in document["devices"]}
    assert values["mlx5_0"] == {None}
    assert None not in values["mlx5_1"]
    assert node.rejects.counts["device_gone"] == 1
    node.files.read_errno.clear()
    assert node.port()["counters"]["port_transmit_data_bytes"]["value"] == 4 * IB_COUNTERS["port_xmit_data"]
    assert node.epoch() != first


def test_firmware_update_is_a_new_epoch(tmp_path: Path) -> None:
    node = Node(tmp_path / "sys", rediscover=1)
    node.tree.device("mlx5_0", "mlx5_core")
    node.read()
    first = node.epoch()
    (node.tree.root / "class/infiniband/mlx5_0/fw_ver").write_text("28.40.1000\n")
    node.reader.search()
    node.read()
    assert node.epoch() != first


def test_directories_that_vanish_between_listing_and_reading(node: Node) -> None:
    node.tree.device("mlx5_0", "mlx5_core", guid=1)
    node.tree.device("mlx5_1", "mlx5_core", guid=2)
    node.files.open_errno[node.tree.port_file("mlx5_0", "counters/port_xmit_data")] = errno.ENODEV
    document = node.read()
    assert {d["name"]: len(d["ports"][0]["counters"]) > 0 for d in document["devices"]} == {
        "mlx5_0": False,
        "mlx5_1": True,
    }
    node.files.open_errno.clear()
    assert node.port()["counters"]["port_transmit_data_bytes"]["value"] is not None


def test_a_missing_file_costs_only_itself(node: Node) -> None:
    node.tree.device("mlx5_0", "mlx5_core")
    Path(node.tree.port_file("mlx5_0", "counters/dangling")).symlink_to("/nowhere/at/all")
    Path(node.tree.port_file("mlx5_0", "counters/directory")).mkdir()
    counters = node.port()["counters"]
    assert counters["dangling"]["value"] is None and counters["directory"]["value"] is None
    assert counters["port_transmit_packets"]["value"] == IB_COUNTERS["port_xmit_packets"]
    assert node.rejects.counts == {"file_missing": 1, "file_refused": 1}


def test_unknown_counters_pass_through(node: Node) -> None:
    node.tree.device("mlx5_0", "mlx5_core", hw_counters={"brand_new_thing": 42})
    assert node.port()["counters"]["brand_new_thing"] == {
        "value": 42, "unit": "unknown", "width": 64, "flags": [], "raw": "brand_new_thing", "source": "hw_counters",
    }  # fmt: skip


def test_two_names_for_one_meaning_are_both_shown(node: Node) -> None:
    node.tree.device("bnxt_re0", "bnxt_en", hw_counters={"np_cnp_sent": 4, "tx_cnp_pkts": 5})
    counters = node.port("bnxt_re0")["counters"]
    assert {(name, e["raw"], e["value"]) for name, e in counters.items()} == {
        ("rdma_transmit_cnp_packets", "np_cnp_sent", 4),
        ("tx_cnp_pkts", "tx_cnp_pkts", 5),
    }


def test_patterns(tmp_path: Path) -> None:
    node = Node(
        tmp_path / "sys",
        device_include=["mlx5_*"],
        device_exclude=["*_2"],
        counter_exclude=["symbol_error", "hw_counters/rp_*"],
    )
    for number in range(3):
        node.tree.device(f"mlx5_{number}", "mlx5_core", guid=number + 1)
    node.tree.device("bnxt_re0", "bnxt_en", guid=9)
    document = node.read()
    assert [d["name"] for d in document["devices"]] == ["mlx5_0", "mlx5_1"]
    raws = {e["raw"] for e in document["devices"][0]["ports"][0]["counters"].values()}
    assert not raws & {"symbol_error", "rp_cnp_handled", "rp_cnp_ignored"} and "np_cnp_sent" in raws
    assert not [path for path in node.files.opens if "mlx5_2" in path]


def test_down_port_has_no_rate(node: Node) -> None:
    node.tree.device("mlx5_0", "mlx5_core", state="1: DOWN", phys_state="3: Disabled", rate="10 Gb/sec (4X SDR)")
    port = node.port()
    assert (port["state"], port["phys_state"], port["rate_gbps"]) == ("DOWN", "Disabled", None)
    column = next(i for i, c in enumerate(node.reader.streams[0].columns) if c.name == "link_rate")
    assert node.reader.streams[0].flags[column] == 0


@pytest.mark.parametrize("file", ["state", "rate", "phys_state", "link_layer"])
def test_unreadable_port_facts_cost_only_themselves(node: Node, file: str) -> None:
    node.tree.device("mlx5_0", "mlx5_core")
    node.files.open_errno[node.tree.port_file("mlx5_0", file)] = errno.EIO
    port = node.port()
    key = "rate_gbps" if file == "rate" else file
    assert port[key] is None
    assert port["counters"]["port_transmit_packets"]["value"] == IB_COUNTERS["port_xmit_packets"]


def test_duplicate_guids_are_counted_and_kept_out(node: Node) -> None:
    node.tree.device("mlx5_0", "mlx5_core", guid=7, address="0000:01:00.0")
    node.tree.device("mlx5_1", "mlx5_core", guid=7, address="0000:02:00.0")
    document = node.read()
    assert "duplicate" not in document["devices"][0]["ports"][0]
    assert document["devices"][1]["ports"][0]["duplicate"] is True
    assert document["devices"][1]["ports"][0]["counters"]["symbol_error"]["value"] == 0
    assert node.rejects.counts == {"duplicate_guid": 1}
    assert [planned.row.device for stream in node.reader.streams for planned in stream.rows] == ["mlx5_0", ""]


def test_a_function_without_a_guid_takes_its_ports(node: Node) -> None:
    link = node.tree.device("mlx5_0", "mlx5_core", guid=0x1234)
    (link / "node_guid").write_text("0000:0000:0000:0000\n")
    assert node.read()["devices"][0]["node_guid"] is None
    row = node.reader.streams[0].rows[0].row
    assert row.guid == 0x1234 and row.labels["guid_from"] == "port"


def test_streams_group_equal_columns(node: Node) -> None:
    for number in range(3):
        node.tree.device(f"mlx5_{number}", "mlx5_core", guid=number + 1)
    node.tree.device("bnxt_re0", "bnxt_en", guid=9)
    node.read()
    shapes = sorted((len(s.rows), s.rows[0].row.driver) for s in node.reader.streams)
    assert shapes == [(1, ""), (1, "bnxt_en"), (3, "mlx5_core")]
    assert len({s.number for s in node.reader.streams}) == 3
    for stream in node.reader.streams:
        schema = stream.schema("n1", "f", 1)
        assert [c.kind for c in schema.columns[:2]] == ["time", "epoch"]
        assert all(flag & Flag.VALID for flag in stream.flags[:2])
        assert len({(c.name, c.priority) for c in schema.columns}) == len(schema.columns)


def test_state_follows_the_link(node: Node) -> None:
    node.tree.device("mlx5_0", "mlx5_core")
    node.read()
    stream = node.reader.streams[0]
    column = {c.name: i for i, c in enumerate(stream.columns)}
    assert (stream.values[column["port_state"]], stream.values[column["link_rate"]]) == (4, 50_000_000_000)
    Path(node.tree.port_file("mlx5_0", "state")).write_text("1: DOWN\n")
    Path(node.tree.port_file("mlx5_0", "phys_state")).write_text("2: Polling\n")
    node.read()
    assert stream.values[column["port_state"]] == 1
    assert not stream.flags[column["link_rate"]] & Flag.VALID


def test_no_rdma_device(node: Node) -> None:
    node.tree.netdev("eth0", address="0000:07:00.0")
    node.tree.netdev("docker0")
    document = node.read()
    assert document["devices"] == []
    assert [n["name"] for n in document["netdevs"]] == ["eth0"]
    assert document["netdevs"][0]["counters"]["netdev_receive_bytes"]["value"] == 5000
    assert "collisions" not in document["netdevs"][0]["counters"]


def test_empty_and_broken_trees(tmp_path: Path) -> None:
    assert Node(tmp_path / "a").read()["devices"] == []
    broken = Node(tmp_path / "b")
    (broken.tree.root / "class/infiniband/dangling").symlink_to("/nowhere")
    (broken.tree.root / "class/infiniband/no_ports").mkdir()
    document = broken.read()
    assert [d["name"] for d in document["devices"]] == ["no_ports"]
    assert {"device_unreadable", "device_without_ports"} <= set(broken.rejects.counts)
