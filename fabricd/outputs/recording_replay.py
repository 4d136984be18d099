"""Run the detector over a recording of frames, as it ran live: the same store, the same windows, the recording's own clock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fabricd.detect.detector import Detector, Finding
from fabricd.detect.fabric import Fabric
from fabricd.detect.pairs import Pair
from fabricd.detect.params import Params
from fabricd.detect.store_windows import StoreWindows
from fabricd.detect.verdicts import VerdictMaker
from fabricd.errors import FabricdError, UsageError
from fabricd.model.rejects import Rejects
from fabricd.model.topology import Topology
from fabricd.model.verdict import NodeId
from fabricd.outputs.replay import Replay
from fabricd.store.playback import Playback
from fabricd.topology.cache import load_cache
from fabricd.topology.load import complete, load_topology
from fabricd.topology.minhop import assumed_routes
from fabricd.topology.routes import ASSUMED, RouteTable

TICK_BYTES = 8
VOLUMES = frozenset({"port_transmit_data_bytes", "priority_transmit_bytes"})
PROBE = 20_000  # frames looked at to learn how often streams report


def is_recording(directory: Path) -> bool:
    """Whether a directory holds segments of frames."""
    return any(directory.glob("*.fbrec"))


def find_topology(directory: Path, given: str | None) -> tuple[Topology, RouteTable]:
    """The topology named, or the one kept beside the recording. Raises UsageError when there is none."""
    places = [Path(given)] if given else [directory / "topology.json", directory.parent / "topology.json"]
    for path in places:
        if not path.exists():
            continue
        try:
            picture = load_cache(path).picture
            return picture.topology, picture.routes or assumed_routes(picture.topology)
        except FabricdError:
            topology = complete(load_topology(path))
            return topology, assumed_routes(topology)
    raise UsageError(f"replay {directory}: no topology beside the recording: name one with --topology FILE")


def interval_of(playback: Playback) -> int:
    """ns: the cadence of the slower streams that carry volumes, from the gaps between their first frames.

    Raises FabricdError when none has two frames.
    """
    last: dict[tuple[str, int], int] = {}
    gaps: dict[tuple[str, int], list[int]] = {}
    for number, played in enumerate(playback):
        if VOLUMES.isdisjoint(column.name for column in played.schema.columns):
            continue
        header = played.frame.header
        key = header.node, header.stream
        if key in last and header.wall_ns > last[key]:
            gaps.setdefault(key, []).append(header.wall_ns - last[key])
        last[key] = header.wall_ns
        if number >= PROBE:
            break
    if not gaps:
        raise FabricdError("recording: no stream of volumes has two frames")
    # The usual gap: the first reading after a start comes early, and one may have been lost.
    usual = sorted(sorted(own)[len(own) // 2] for own in gaps.values())
    # Readings fall a little early or late: round up to what the schedule must have been.
    step = usual[int(0.9 * (len(usual) - 1))]
    unit: int = 10 ** max(0, len(str(step)) - 2)
    return -(-step // unit) * unit


def run_recording(
    directory: Path, topology_file: str | None, pairs: Sequence[tuple[NodeId, NodeId, int | None]] = ()
) -> Replay:
    """Replay a recording. Raises UsageError without a topology, FabricdError when it cannot be read."""
    topology, routes = find_topology(directory, topology_file)
    playback = Playback(directory)
    interval = interval_of(playback)
    fabric = Fabric(topology, routes)
    params = Params()
    detector: Detector | None = None
    maker: VerdictMaker | None = None
    windows: StoreWindows | None = None
    findings: list[Finding] = []
    count = 0
    for now, store in playback.intervals(interval):
        # The first intervals show who reports; priorities are fixed when the first window is cut.
        if windows is None or detector is None:
            windows = StoreWindows(store, fabric, TICK_BYTES)
            detector = Detector(fabric, windows.priorities, None, params)
            known = _known(topology, pairs, playback.rejects)
            maker = VerdictMaker(fabric, windows.priorities, params, known, assumed_routes=ASSUMED in routes.sources)
        findings += detector.step(windows.window(now, interval, 2.5 * interval)).ended
        count += 1
    if detector is None or maker is None:
        return Replay([], 0, playback.rejects)
    last = detector.open()
    for finding in last:
        finding.end = finding.episode.end
    verdicts = [maker.make(finding) for finding in findings + last]
    verdicts.sort(key=lambda verdict: (verdict.detected_at, verdict.start, str(verdict.roots)))
    return Replay(verdicts, count, playback.rejects, {maker.identity(finding) for finding in last})


def _known(topology: Topology, pairs: Sequence[tuple[NodeId, NodeId, int | None]], rejects: Rejects) -> list[Pair]:
    names: dict[str, int] = {}
    for guid, node in topology.nodes.items():
        for name in (node.name, f"0x{guid:016x}", *([node.host] if node.host else ())):
            names.setdefault(name, guid)
    known: dict[Pair, None] = {}
    for source, destination, prio in pairs:
        try:
            known[names[str(source)], names[str(destination)], prio] = None
        except KeyError as error:
            rejects.add("pair_host", error.args[0], "pairs")
    return list(known)
