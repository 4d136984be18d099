"""Unmodified opensm and infiniband-diags against a twin: what the model does they read, what they write the model does."""

from __future__ import annotations

import csv
import io
import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.pipeline import wait_for
from tests.integration.twin_tools import OpenSm, Tools, running_twin, wait_until

Rows = dict[tuple[str, int], dict[str, int]]


def telemetry(addresses: dict[str, Any]) -> Rows:
    """The twin's 64-bit counters over HTTP (libumad2sim cuts the last 32 bytes off every MAD)."""
    rows = csv.DictReader(io.StringIO(httpx.get(addresses["ufm_csv"]).text))
    return {
        (row["node_description"], int(row["port_num"])): {
            name: int(value) for name, value in row.items() if name.startswith(("Port", "Symbol", "Link"))
        }
        for row in rows
    }


def rates(addresses: dict[str, Any], name: str, seconds: float = 1.5) -> dict[tuple[str, int], float]:
    """Change of one counter per second, by (node, port)."""
    before, start = telemetry(addresses), time.monotonic()
    time.sleep(seconds)
    after, end = telemetry(addresses), time.monotonic()
    return {key: (after[key][name] - before[key][name]) / (end - start) for key in before}


@pytest.fixture(scope="module")
def incast(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Any], Tools, dict[str, Any]]]:
    """An incast that began a few seconds ago, with an opensm that took the subnet over."""
    directory = tmp_path_factory.mktemp("incast")
    with running_twin("incast", "--begin", "1", "--seed", "2") as addresses:
        tools = Tools(addresses["mad_socket"], directory)
        manager = OpenSm(tools, directory / "opensm")
        try:
            manager.wait_up()
            yield addresses, tools, json.loads(Path(addresses["truth"]).read_text())
        finally:
            manager.stop()


def test_the_subnet_is_what_the_truth_says(incast: tuple[dict[str, Any], Tools, dict[str, Any]]) -> None:
    _, tools, truth = incast
    names = {node["name"] for node in truth["nodes"].values()}
    discovered = tools.run("ibnetdiscover")
    assert {m[1] for m in re.finditer(r'^Switch\s+\d+ "S-[0-9a-f]+"\s+# "([^"]+)"', discovered, re.M)} <= names
    assert len(re.findall(r"^Ca\s", discovered, re.M)) == sum(name.startswith("host") for name in names)
    assert "4xNDR" in discovered


def test_extended_counters_are_the_model_s(incast: tuple[dict[str, Any], Tools, dict[str, Any]]) -> None:
    addresses, tools, _ = incast
    (switch, port), _ = max(
        (item for item in telemetry(addresses).items() if item[0][0].startswith("leaf")),
        key=lambda item: item[1]["PortXmitDataExtended"],
    )
    lid = lid_of(tools, switch)
    # Only once the narrow counter is full does it differ from the wide one.
    wait_for(
        lambda: telemetry(addresses)[switch, port]["PortXmitDataExtended"] > 0xFFFFFFFF,
        "the narrow counter is full",
        100,
    )
    before = telemetry(addresses)[switch, port]
    shown = tools.fields("perfquery", "-x", lid, str(port))
    after = telemetry(addresses)[switch, port]
    for name, field in (("PortXmitData", "PortXmitDataExtended"), ("PortXmitPkts", "PortXmitPktsExtended")):
        assert 0 < before[field] <= int(shown[name]) <= after[field]
    narrow = tools.fields("perfquery", lid, str(port))
    assert int(narrow["PortXmitData"]) == min(int(shown["PortXmitData"]), 0xFFFFFFFF) == 0xFFFFFFFF


def lid_of(tools: Tools, switch: str) -> str:
    line = next(line for line in tools.run("ibswitches").splitlines() if f'"{switch}"' in line)
    return line.split(" lid ")[1].split()[0]


def test_optional_attributes_answer(incast: tuple[dict[str, Any], Tools, dict[str, Any]]) -> None:
    addresses, tools, _ = incast
    (switch, port), _ = max(
        (item for item in telemetry(addresses).items() if item[0][0].startswith("leaf")),
        key=lambda item: item[1]["PortXmitDataExtended"],
    )
    lid = lid_of(tools, switch)
    level = tools.fields("perfquery", "-X", lid, str(port))
    assert int(level["XmtDataSL0"]) > 0
    assert int(level["XmtDataSL5"]) == 0
    lanes = tools.fields("perfquery", "--vlxmitcounters", lid, str(port))
    assert 0 <= int(lanes["PortVLXmitWait0"]) <= 0xFFFF
    assert tools.fields("perfquery", "-c", lid, str(port))["Tick"] == "0x07"
    for option in ("-S", "-D", "-E", "--swportvlcong", "--rcvcc", "--slrcvfecn", "--slrcvbecn", "--xmitcc", "--vlxmittimecc",
                   "--oprcvcounters", "--flowctlcounters", "--vloppackets", "--vlopdata", "--vlxmitflowctlerrors"):  # fmt: skip
        assert tools.fields("perfquery", option, lid, str(port))["PortSelect"] == str(port), option


def test_all_ports_are_a_sum_and_clearing_starts_again(incast: tuple[dict[str, Any], Tools, dict[str, Any]]) -> None:
    _, tools, _ = incast
    lid = lid_of(tools, "leaf0")
    wait_for(lambda: int(tools.fields("perfquery", "-x", lid, "1")["PortXmitData"]) > 0, "traffic through the port", 60)
    everything = tools.fields("perfquery", "-x", lid, "255")
    single = tools.fields("perfquery", "-x", lid, "1")
    assert int(everything["PortXmitData"]) > int(single["PortXmitData"]) > 0
    tools.run("perfquery", "-x", "-R", lid, "1")
    cleared = tools.fields("perfquery", "-x", lid, "1")
    assert int(cleared["PortXmitData"]) < int(single["PortXmitData"])


def test_paths_and_records_agree(incast: tuple[dict[str, Any], Tools, dict[str, Any]]) -> None:
    _, tools, _ = incast
    hosts = [line for line in tools.run("ibhosts").splitlines() if line.startswith("Ca")]
    guids = [int(line.split(": ")[1].split()[0], 16) for line in hosts]
    lids = [tools.fields("smpquery", "-G", "portinfo", f"0x{guid + 1:x}")["Lid"] for guid in (guids[0], guids[-1])]
    record = tools.run("saquery", "-p", "--src-to-dst", ":".join(lids))
    assert re.search(rf"dlid\.+{lids[1]}\b", record)
    trace = tools.run("ibtracert", *lids)
    assert trace.count("switch port") >= 1
    assert trace.strip().splitlines()[-1].startswith("To ca")


def test_error_report_lists_what_waits(incast: tuple[dict[str, Any], Tools, dict[str, Any]]) -> None:
    addresses, tools, _ = incast
    time.sleep(2)
    report = tools.run("ibqueryerrors", "--switch", statuses=(0, 1))
    waiting = {
        (int(m[1], 16), int(m[2]))
        for m in re.finditer(r"GUID (0x[0-9a-f]+) port (\d+):.*\[PortXmitWait == (\d+)", report)
    }
    rows = list(csv.DictReader(io.StringIO(httpx.get(addresses["ufm_csv"]).text)))
    truly = {
        (int(row["node_guid"], 16), int(row["port_num"]))
        for row in rows
        if row["node_description"].startswith(("leaf", "spine", "pod", "agg", "edge", "core"))
        and int(row["PortXmitWaitExtended"]) > 0
    }
    assert waiting and waiting <= truly


def test_disabling_a_port_takes_the_link_down_and_tells_the_manager(
    incast: tuple[dict[str, Any], Tools, dict[str, Any]],
) -> None:
    _, tools, _ = incast
    lid = lid_of(tools, "leaf1")
    hosts = len(re.findall("^Ca", tools.run("ibhosts"), re.M))
    tools.run("ibportstate", lid, "1", "disable")
    assert tools.fields("smpquery", "portinfo", lid, "1")["PhysLinkState"] == "Disabled"
    assert len(re.findall("^Ca", tools.run("ibhosts"), re.M)) == hosts - 1
    tools.run("ibportstate", lid, "1", "enable")
    wait_until(
        lambda: tools.fields("smpquery", "portinfo", lid, "1")["LinkState"] == "Active",
        30,
        "the manager activates the port",
    )


def test_a_narrowed_link_trains_slower_and_back(tmp_path: Path) -> None:
    with running_twin("quiet") as addresses:
        tools = Tools(addresses["mad_socket"], tmp_path)

        def setting() -> tuple[str, str]:
            shown = tools.fields("smpquery", "portinfo", "1", "1")
            return shown["LinkWidthActive"], shown["LinkState"]

        rates_shown = list(Path(addresses["sysfs"]).glob("*/class/infiniband/mlx5_0/ports/1/rate"))
        assert setting() == ("4X", "Active")
        for width, expected in (("1", "1X"), ("3", "4X")):
            tools.run("ibportstate", "1", "1", "width", width)
            tools.run("ibportstate", "1", "1", "reset")
            wait_until(lambda expected=expected: setting() == (expected, "Active"), 20, f"{expected}, active")
            narrow = 1 if expected == "1X" else 0
            wait_until(
                lambda n=narrow: sum(file.read_text().startswith("100 ") for file in rates_shown) == n,
                20,
                "the host's rate",
            )


def test_opensm_brings_up_648_hosts(tmp_path: Path) -> None:
    with running_twin("quiet", "--hosts", "648", "--no-manager") as addresses:
        tools = Tools(addresses["mad_socket"], tmp_path)
        assert tools.fields("smpquery", "-D", "portinfo", "0,1", "1")["LinkState"] == "Initialize"
        manager = OpenSm(tools, tmp_path / "opensm")
        try:
            manager.wait_up(seconds=60)
            assert len(re.findall("^Ca", tools.run("ibhosts"), re.M)) == 640
            wait_until(
                lambda: sum(rates(addresses, "PortXmitDataExtended", 1).values()) > 0, 30, "traffic after routing"
            )
        finally:
            manager.stop()


def test_lanes_and_weights_are_kept_and_used(tmp_path: Path) -> None:
    with running_twin("tp-storage", "--kind", "infiniband", "--begin", "1") as addresses:
        tools = Tools(addresses["mad_socket"], tmp_path)
        qos = (
            "qos TRUE\nqos_max_vls 2\nqos_high_limit 4\nqos_vlarb_high 1:32\nqos_vlarb_low 0:64,1:16\n"
            "qos_sl2vl 0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0\n"
        )
        manager = OpenSm(tools, tmp_path / "opensm", qos)
        try:
            manager.wait_up()
            time.sleep(1)
            loads = {key: rate for key, rate in rates(addresses, "PortRcvDataExtended").items() if "mlx5" not in key[0]}
            switch, number = max(loads, key=lambda key: loads[key])
            lid, port = lid_of(tools, switch), str(number)
            table = tools.run("smpquery", "sl2vl", lid, port)
            assert re.search(rf"in  2, out {number:>2}: \|" + r" 0\|" * 16, table)
            assert tools.fields("smpquery", "portinfo", lid, port)["VLHighLimit"] == "4"
            arbitration = tools.run("smpquery", "vlarb", lid, port)
            assert "0x40" in arbitration and "0x20" in arbitration
            # With every level on lane 0 nothing arrives on lane 1 any more.
            tools.run("perfquery", "--vlopdata", "-R", lid, port)
            time.sleep(2)
            arrived = tools.fields("perfquery", "--vlopdata", lid, port)
            assert int(arrived["PortVLOpData0"]) > 0 and int(arrived["PortVLOpData1"]) == 0
        finally:
            manager.stop()


def test_congestion_control_set_by_opensm_marks_and_slows(tmp_path: Path) -> None:
    with running_twin("incast", "--begin", "0.5", "--seed", "2") as addresses:
        tools = Tools(addresses["mad_socket"], tmp_path)
        manager = OpenSm(tools, tmp_path / "opensm")
        try:
            manager.wait_up()
            time.sleep(2)
            waiting = sum(rates(addresses, "PortXmitWaitExtended").values())
            manager.configure(
                "congestion_control TRUE\ncc_key 0\ncc_max_outstanding_mads 50\ncc_sw_cong_setting_control_map 0x1F\n"
                "cc_sw_cong_setting_threshold 0x0F\ncc_sw_cong_setting_marking_rate 0\n"
                "cc_ca_cong_setting_control_map 0xFFFF\ncc_ca_cong_setting_ccti_increase 0 4\n"
                "cc_ca_cong_setting_trigger_threshold 0 1\ncc_ca_cong_setting_ccti_timer 0 150\n"
                "cc_cct " + ",".join(f"0:{i}" for i in range(128)) + "\n"
            )
            manager.reload()
            congestion = addresses["ufm_csv"].replace("/csv/metrics", "/csv/cset/congestion")

            def marked() -> int:
                rows = csv.DictReader(io.StringIO(httpx.get(congestion).text))
                return sum(int(row["PortRcvFECN"]) for row in rows)

            wait_until(lambda: marked() > 0, 20, "packets with FECN")
            wait_until(
                lambda: sum(rates(addresses, "PortXmitWaitExtended").values()) < 0.7 * waiting, 30, "less waiting"
            )
        finally:
            manager.stop()


def test_hop_weights_move_the_traffic_and_the_congestion_with_it(tmp_path: Path) -> None:
    console = free_port()
    with running_twin("degraded-link", "--kind", "infiniband", "--begin", "1", "--seed", "3") as addresses:
        truth = json.loads(Path(addresses["truth"]).read_text())
        guid, port = truth["intent"]["link"]
        switch = next(node["name"] for node in truth["nodes"].values() if int(node["guid"], 16) == guid)
        tools = Tools(addresses["mad_socket"], tmp_path)
        manager = OpenSm(tools, tmp_path / "opensm", f"console loopback\nconsole_port {console}\n")
        try:
            manager.wait_up()
            time.sleep(2)
            load = rates(addresses, "PortXmitDataExtended")[switch, port]
            waiting = sum(rates(addresses, "PortXmitWaitExtended").values())
            assert load > 0 and waiting > 0
            manager.hop_weights.write_text(f"0x{guid:x} {port}: 8\n")
            manager.reload()
            wait_until(
                lambda: rates(addresses, "PortXmitDataExtended")[switch, port] < 0.01 * load, 20, "traffic off the link"
            )
            wait_until(
                lambda: sum(rates(addresses, "PortXmitWaitExtended").values()) < 0.3 * waiting, 30, "congestion gone"
            )
            manager.hop_weights.write_text("")
            with socket.create_connection(("127.0.0.1", console), timeout=10) as line:
                line.sendall(b"reroute\n")
                wait_until(
                    lambda: rates(addresses, "PortXmitDataExtended")[switch, port] > 0.3 * load, 30, "traffic back"
                )
        finally:
            manager.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_twelve_clients_at_once(tmp_path: Path) -> None:
    with running_twin("quiet") as addresses:
        tools = Tools(addresses["mad_socket"], tmp_path)
        running = [
            subprocess.Popen(
                ["ibsim-run", "perfquery", "--loop_ports", "-x", "1", "1-4"],
                cwd=tmp_path, env=tools.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for _ in range(12)
        ]  # fmt: skip
        for process in running:
            out, err = process.communicate(timeout=60)
            assert process.returncode == 0, err
            assert out.count("PortXmitData:") == 4
