"""The cost model against published measurements (wire rates per NIC, a B200 size sweep) and closed forms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.jobs.allreduce import (
    Cluster,
    best,
    bus_factor,
    estimate,
    fit_alpha_beta,
    hierarchical,
    seconds_from_busbw,
    wire_bytes_per_nic,
    wire_rate_per_nic,
)
from fabricd.jobs.transformer import Transformer, step_share

MIB, GIB = 2**20, 2**30

# (busbw GB/s, ranks, nodes, published wire GB/s per NIC)
PUBLISHED_WIRE = [
    ("CoreWeave H100 8x8", 386.56, 64, 8, 42.95),
    ("Voltage Park H100 4x8", 330.93, 32, 4, 32.0),
    ("AWS p6 B200 4x8", 381.80, 32, 4, 36.95),
    ("Azure NDv5 2x8", 483.0, 16, 2, 32.2),
    ("GB200 two racks", 820.0, 144, 2, 5.7),
    ("GB200 twenty racks", 405.7, 1440, 20, 5.4),
]
# B200, four nodes of eight: size -> busbw GB/s (public stas00 ml-engineering measurements)
B200_FOUR_NODES = {1: 5.37, 16: 64.43, 64: 156.74, 256: 229, 1024: 362, 8192: 380}


@pytest.mark.parametrize(("name", "busbw", "n", "k", "wire"), PUBLISHED_WIRE)
def test_published_wire_rates(name: str, busbw: float, n: int, k: int, wire: float) -> None:
    assert wire_rate_per_nic(busbw, n, k) == pytest.approx(wire, rel=0.01)


def test_many_nodes_approach_one_nth() -> None:
    assert wire_rate_per_nic(192, 8 * 10_000, 10_000) == pytest.approx(24.0, rel=0.001)


def test_alpha_beta_fit_of_the_b200_sweep() -> None:
    points = [(mib * MIB, seconds_from_busbw(mib * MIB, 32, busbw)) for mib, busbw in B200_FOUR_NODES.items()]
    fit = fit_alpha_beta(points, 32)
    assert fit.alpha_seconds * 1e6 == pytest.approx(404, rel=0.1)
    assert fit.beta_gbs == pytest.approx(360, rel=0.1)
    assert fit.rms_error < 0.12


def test_hierarchical_bounds_hold_the_measured_time() -> None:
    b200 = Cluster(nodes=4, gpus_per_node=8, nics_per_node=8, nic_gbs=50, nvlink_gbs=741)
    low, high = hierarchical(b200, 4 * GIB)
    assert low * 1e3 == pytest.approx(16.1, rel=0.01)
    assert high * 1e3 == pytest.approx(26.25, rel=0.01)
    assert low < 22.05e-3 < high


def test_tensor_parallel_tax_of_a_70b_like_model() -> None:
    model = Transformer(layers=80, hidden=8192, sequence=4096)
    assert model.message_bytes * model.allreduces == 20 * GIB
    inside = step_share(model, 8, 2.25e15, 0.5, 400.6)
    across = step_share(model, 32, 2.25e15, 0.5, 156.74)
    assert inside.compute_seconds * 1e3 == pytest.approx(191, rel=0.02)
    assert inside.communication_seconds * 1e3 == pytest.approx(94, rel=0.02)
    assert across.communication_seconds * 1e3 == pytest.approx(265, rel=0.02)
    assert inside.compute_share == pytest.approx(0.67, abs=0.01)
    assert across.compute_share == pytest.approx(0.15, abs=0.01)


def test_bus_factors() -> None:
    assert bus_factor("allreduce", 4) == 1.5
    assert bus_factor("alltoall", 4) == 0.75
    assert bus_factor("broadcast", 4) == 1
    assert bus_factor("allreduce", 1) == 0


CLUSTERS = st.builds(
    Cluster,
    nodes=st.integers(1, 64),
    gpus_per_node=st.integers(1, 8),
    nics_per_node=st.integers(1, 8),
    nic_gbs=st.floats(1, 100),
    nvlink_gbs=st.floats(100, 1000),
)


@given(CLUSTERS, st.floats(1, 1e10), st.floats(0.05, 1))
def test_congestion_never_makes_it_faster(cluster: Cluster, size: float, share: float) -> None:
    congested = Cluster(
        cluster.nodes, cluster.gpus_per_node, cluster.nics_per_node, cluster.nic_gbs, cluster.nvlink_gbs, "intel", share
    )
    assert estimate(congested, size).seconds >= estimate(cluster, size).seconds * (1 - 1e-12)
    assert hierarchical(congested, size)[1] >= hierarchical(cluster, size)[1] * (1 - 1e-12)


@given(CLUSTERS, st.floats(1, 1e10))
def test_bounds_are_ordered_and_best_is_best(cluster: Cluster, size: float) -> None:
    low, high = hierarchical(cluster, size)
    assert 0 <= low <= high <= 2 * low
    assert best(cluster, size).seconds <= estimate(cluster, size, "ring").seconds * (1 + 1e-12)
    assert wire_bytes_per_nic(cluster, size) <= 2 * size / cluster.nics_per_node


@given(st.floats(1e-6, 1e-3), st.floats(1, 500), st.integers(2, 512))
def test_fit_finds_what_it_was_made_from(alpha: float, beta: float, n: int) -> None:
    points = [(s, alpha + s * bus_factor("allreduce", n) / (beta * 1e9)) for s in (1e3, 1e6, 1e8, 1e10)]
    fit = fit_alpha_beta(points, n)
    assert fit.beta_gbs == pytest.approx(beta, rel=1e-5)
    assert fit.alpha_seconds == pytest.approx(alpha, rel=1e-3, abs=1e-9)


def test_small_messages_prefer_low_latency_protocols() -> None:
    h100 = Cluster(nodes=16, gpus_per_node=8, nics_per_node=8, nic_gbs=48.5, nvlink_gbs=370)
    assert best(h100, 1024).protocol == "LL"
    assert best(h100, 1024).algorithm == "tree"
    assert best(h100, 8 * GIB).protocol == "Simple"


@pytest.mark.parametrize("bad", [{"nodes": 0}, {"nic_gbs": 0}, {"uplink_share": 1.5}, {"uplink_share": 0}])
def test_nonsense_is_refused_by_name(bad: dict[str, float]) -> None:
    good = {"nodes": 2, "gpus_per_node": 8, "nics_per_node": 8, "nic_gbs": 50, "nvlink_gbs": 400}
    with pytest.raises(ValueError, match=next(iter(bad))):
        Cluster(**{**good, **bad})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="size"):
        estimate(Cluster(**good), 0)  # type: ignore[arg-type]
