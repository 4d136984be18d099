import pytest

from fabricd.jobs.nccl_tests import against_wire, parse

HEADER = """# nThread 1 nGpus 1 minBytes 1048576 maxBytes 8589934592
# Using devices
#  Rank  0 Group  0 Pid   4711 on     gpu001 device  0 [0000:17:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   4712 on     gpu002 device  0 [0000:17:00] NVIDIA H100 80GB HBM3
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
"""
LINE = "  8589934592    2147483648     float     sum      -1    43750  196.34  386.55      0    43790  196.16  386.20      0\n"


def test_a_line_becomes_gigabytes_per_nic() -> None:
    test = parse(HEADER + LINE)
    assert (test.ranks, test.nodes, test.gpu) == (2, 2, "NVIDIA H100 80GB HBM3")
    row = against_wire(test, nodes=8, gpus_per_node=8, nic_gbps=400)["rows"][0]
    assert row["wire_gbs_per_nic"] == pytest.approx(42.95, rel=0.001)
    assert row["percent_of_line"] == pytest.approx(86, abs=0.5)


def test_bad_lines_cost_only_themselves() -> None:
    test = parse(HEADER + "  123  broken line\n" + LINE + "  77 1 float sum -1 x 1 1 0 1 1 1 0\n")
    assert len(test.lines) == 1
    assert test.rejects.counts == {"nccl_tests_line": 2}


def test_alltoall_prints_na_in_place() -> None:
    test = parse("  1024  256  float  none  -1  10.0  0.10  0.09  0  11.0  0.09  0.08  N/A\n")
    assert test.lines[0].wrong == 0
    test = parse("  1024  256  float  none  -1  10.0  0.10  0.09  N/A  N/A  N/A  N/A  N/A\n")
    assert test.lines[0].in_place_busbw is None
    assert test.lines[0].wrong is None


def test_wrong_results_and_two_nodes_are_said() -> None:
    test = parse(LINE.replace("386.55      0", "386.55      7"))
    notes = " ".join(against_wire(test, 2, 8, 400)["notes"])
    assert "wrong" in notes
    assert "NVLink" in notes
    with pytest.raises(ValueError, match="two nodes"):
        against_wire(test, 1, 8, 400)
