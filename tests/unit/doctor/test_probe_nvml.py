"""The optional parts: ib_write_bw's output, and NVML through a library compiled for the test."""

import subprocess
from pathlib import Path

from fabricd.doctor.nvml import gpu_memory
from fabricd.doctor.probe import measure, parse_gbps
from fabricd.doctor.run import make_context, run_checks
from tests.unit.doctor.trees import h100

OUTPUT = """ #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      1000000          0.00               389.42 		   0.742759
"""

STAND_IN_NVML = r"""
#include <string.h>
typedef struct { unsigned long long total, free, used; } mem;
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **h) { if (strcmp(id, "0000:18:00.0")) return 6; *h = (void *)1; return 0; }
int nvmlDeviceGetMemoryInfo(void *h, mem *m) { m->total = 85899345920ULL; return 0; }
int nvmlDeviceGetBAR1MemoryInfo(void *h, mem *m) { m->total = 137438953472ULL; return 0; }
"""


def test_bandwidth_lines() -> None:
    assert parse_gbps(OUTPUT) == 389.42
    assert parse_gbps("Couldn't connect to 127.0.0.1:1\n") is None


def test_a_missing_tool_is_said() -> None:
    assert "not installed" in measure("mlx5_0", lambda line: None, command="no-such-ib-write-bw")["why"]


def test_a_tool_that_fails_gives_its_last_line(tmp_path: Path) -> None:
    tool = tmp_path / "ib_write_bw"
    tool.write_text("#!/bin/sh\necho ' Unable to find the Infiniband/RoCE device'\nexit 1\n")
    tool.chmod(0o755)
    answer = measure("mlx5_9", lambda line: None, command=str(tool))
    assert answer == {"gbps": None, "why": f"{tool}: Unable to find the Infiniband/RoCE device"}


def test_nvml_by_a_stand_in_library(tmp_path: Path) -> None:
    source, library = tmp_path / "nvml.c", tmp_path / "libnvidia-ml.so"
    source.write_text(STAND_IN_NVML)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    assert gpu_memory(["0000:18:00.0", "0000:99:00.0"], str(library)) == {
        "0000:18:00.0": {"memory": 85899345920, "bar1": 137438953472}
    }
    assert gpu_memory(["0000:18:00.0"], str(tmp_path / "none.so")) == {}


def test_bar1_is_compared_with_the_memory(tmp_path: Path) -> None:
    tree = h100(tmp_path, pairs=1)
    for memory, verdict in ((80 << 30, "ok"), (192 << 30, "warn")):
        tree.calls["nvml"] = {"0000:18:00.0": {"memory": memory}}
        result = next(r for r in run_checks(make_context(tree.done())) if r.id == "gpu.bar1")
        assert result.verdict == verdict


def test_probe_results_against_line_rate(tmp_path: Path) -> None:
    tree = h100(tmp_path, pairs=2)
    tree.calls["bandwidth"] = {"mlx5_0": {"gbps": 392.0}, "mlx5_1": {"gbps": 180.0}}
    result = next(r for r in run_checks(make_context(tree.done())) if r.id == "probe.bandwidth")
    assert {f.subject: f.verdict for f in result.findings} == {"mlx5_0": "ok", "mlx5_1": "fail"}
