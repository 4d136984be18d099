"""One bundle for a vendor ticket: the counters around a verdict, topology, routes, what was done; anonymised; it replays by itself.

A bundle is made, replayed, and kept only when it leads to the same verdict; else more of the time before goes into it.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import tarfile
import tempfile
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from fabricd import __version__
from fabricd.errors import FabricdError
from fabricd.model.frame import Schema, encode_frame
from fabricd.model.topology import Topology
from fabricd.model.verdict import Verdict
from fabricd.outputs import replay
from fabricd.outputs.anonymous import Anonymiser
from fabricd.outputs.history_trace import renumbered_arrays
from fabricd.outputs.recording_replay import find_topology, interval_of, run_recording
from fabricd.outputs.trace import Trace, read_trace
from fabricd.outputs.trace_writer import cut, write_trace
from fabricd.outputs.verdict_text import explain
from fabricd.store.playback import Playback
from fabricd.store.recording import Recording
from fabricd.store.records import Kind
from fabricd.topology.cache import save_cache
from fabricd.topology.live import Picture
from fabricd.topology.routes import RouteTable
from fabricd.topology.slots import SlotBook

LEADS = (60, 400, 1_000_000_000)  # intervals before the verdict; the next is tried when a replay comes out otherwise
TAIL = 30  # intervals after its end
SUFFIX = ".tar.gz"
_UNPACKED_MAX = 8 << 30
_SEGMENT = 16 << 20  # bytes; the disk space of one is reserved ahead
_README = """\
One verdict of fabricd {version} and everything it rests on. Names, GUIDs, addresses and jobs are replaced, the same by the same.

  verdict.json     the verdict: root, cause, who is hurt, evidence, what was not seen
  explain.txt      the same as text: who waits for whom
  {counters}
  topology.json    cabling and, where known, routes
  actions.json     what was written to devices because of it, and what they answered
  report.json      how the bundle was checked

Replay it with:  fabricd replay {name}{suffix}
"""


@dataclass(slots=True)
class Report:
    """A finished bundle. ``same``: replayed, it names the verdict's root and cause."""

    path: Path
    verdict: Verdict
    intervals: int
    same: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "file": str(self.path),
            "id": self.verdict.id,
            "bytes": self.path.stat().st_size,
            "intervals": self.intervals,
            "replays_to_the_same": self.same,
        }


def of_trace(trace: Trace, intervals: int, verdict: Verdict, actions: Any, key: bytes, out: Path) -> Report:
    """Bundle of a verdict that a trace, or somebody's history, led to. Raises FabricdError."""
    table = trace.counters
    step = int((table.t_ns[-1] - table.t_ns[0]) // max(intervals - 1, 1)) if len(table) else 1
    anonymous = Anonymiser(trace.topology, key)
    # A trace numbers its nodes: only their names and ids are telling.
    nodes = {
        guid: dataclasses.replace(node, name=anonymous.node_name(node), host="", labels={})
        for guid, node in trace.topology.nodes.items()
    }
    renamed = dataclasses.replace(
        trace,
        topology=Topology("default", nodes, trace.topology.links),
        ids=[anonymous.node_id(node) for node in trace.ids],
    )

    def fill(directory: Path, start_ns: int, end_ns: int) -> replay.Replay:
        write_trace(cut(renamed, start_ns, end_ns), directory)
        return replay.run(read_trace(directory))

    return _bundle(verdict, anonymous, actions, step, fill, out, "counters.csv.gz  the counters of every port")


def of_recording(
    directory: Path, topology_file: str | None, verdict: Verdict, actions: Any, key: bytes, out: Path
) -> Report:
    """Bundle of a verdict that frames of a recording led to. Raises UsageError without a topology, FabricdError."""
    topology, routes = find_topology(directory, topology_file)
    playback = Playback(directory)
    step = interval_of(playback)
    anonymous = Anonymiser(topology, key)
    renamed = anonymous.topology(topology)
    number = {guid: anonymous.guid(guid) for guid in topology.nodes}
    picture = Picture(renamed, RouteTable.restored(renamed, renumbered_arrays(routes.arrays(), number)))

    def fill(place: Path, start_ns: int, end_ns: int) -> replay.Replay:
        place.mkdir(parents=True, exist_ok=True)
        _frames(playback, anonymous, place, start_ns, end_ns)
        save_cache(place / "topology.json", picture, SlotBook(), Topology())
        return run_recording(place, None)

    return _bundle(verdict, anonymous, actions, step, fill, out, "*.fbrec          the frames of every node")


def _frames(playback: Playback, anonymous: Anonymiser, place: Path, start_ns: int, end_ns: int) -> None:
    """The frames of a span under new names."""
    renamed: dict[int, tuple[Schema, int]] = {}
    recording = Recording(place, 1 << 40, lambda: iter(()), _SEGMENT)
    try:
        for frame, schema, received_ns, _ in playback:
            header = frame.header
            if not start_ns <= header.wall_ns <= end_ns:
                continue
            if header.schema_id not in renamed:
                new = _schema(schema, anonymous)
                renamed[header.schema_id] = new, new.id
                recording.append(Kind.SCHEMA, new.encode(), received_ns)
            new, schema_id = renamed[header.schema_id]
            values, flags = array("Q", frame.values.tobytes()), frame.flags.tobytes()
            payload = encode_frame(
                msgspec.structs.replace(new, boot=header.boot), schema_id, header.seq, header.mono_ns, header.wall_ns, values, flags
            )  # fmt: skip
            recording.append(Kind.FRAME, payload, received_ns)
            recording.flush()
    finally:
        recording.close()


def _schema(schema: Schema, anonymous: Anonymiser) -> Schema:
    rows = tuple(
        msgspec.structs.replace(row, guid=anonymous.guid(row.guid), labels=anonymous.labels(row.labels))
        for row in schema.rows
    )
    return msgspec.structs.replace(
        schema, node=anonymous.hashed("node", schema.node), fabric=anonymous.fabric(schema.fabric), rows=rows
    )


def _bundle(
    verdict: Verdict,
    anonymous: Anonymiser,
    actions: Any,
    step_ns: int,
    fill: Callable[[Path, int, int], replay.Replay],
    out: Path,
    counters: str,
) -> Report:
    renamed = anonymous.verdict(verdict)
    name = out.name.removesuffix(SUFFIX)
    end_ns = (verdict.end or verdict.detected_at) + TAIL * step_ns
    try:
        with tempfile.TemporaryDirectory(prefix="fabricd-report") as temporary:
            place = Path(temporary) / name
            for lead in LEADS:
                shutil.rmtree(place, ignore_errors=True)
                result = fill(place, verdict.start - lead * step_ns, end_ns)
                same = any(agrees(renamed, found) for found in result.verdicts)
                if same:
                    break
            texts = {
                "verdict.json": _json(msgspec.to_builtins(renamed)),
                "explain.txt": explain(renamed) + "\n",
                "actions.json": _json(anonymous.document(actions)),
                "report.json": _json(
                    {"fabricd": __version__, "intervals": result.intervals, "replays_to_the_same": same,
                     "replayed": [msgspec.to_builtins(found) for found in result.verdicts]}
                ),
                "README.txt": _README.format(version=__version__, name=name, suffix=SUFFIX, counters=counters),
            }  # fmt: skip
            for file, text in texts.items():
                (place / file).write_text(text)
            with tarfile.open(out, "w:gz") as tar:
                tar.add(place, name, filter=_nobody)
    except OSError as error:
        raise FabricdError(f"{error.filename or out}: {error.strerror}") from None
    return Report(out, renamed, result.intervals, same)


def agrees(wanted: Verdict, found: Verdict) -> bool:
    """Same roots, cause and priority at overlapping times."""
    overlap = found.start <= (wanted.end or wanted.detected_at) and wanted.start <= (found.end or found.detected_at)
    roots = {(str(node), port) for node, port in wanted.roots} == {(str(node), port) for node, port in found.roots}
    return overlap and roots and (wanted.cause, wanted.priority) == (found.cause, found.priority)


def _json(document: Any) -> str:
    return json.dumps(document, indent=1) + "\n"


def _nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The archive tells neither who made it nor on which machine."""
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def is_bundle(path: Path) -> bool:
    return path.is_file() and path.name.endswith(SUFFIX)


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """A bundle's directory, for as long as it is looked at. Raises FabricdError when it is none."""
    with tempfile.TemporaryDirectory(prefix="fabricd-report") as temporary:
        try:
            with tarfile.open(path, "r:gz") as tar:
                _extract(tar, Path(temporary), path)
        except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
            raise FabricdError(f"{path}: not a bundle of fabricd report: {error}") from None
        if not (Path(temporary) / "verdict.json").exists():
            raise FabricdError(f"{path}: not a bundle of fabricd report")
        yield Path(temporary)


def _extract(tar: tarfile.TarFile, place: Path, path: Path) -> None:
    """The plain files of a bundle by their last name: whatever else an archive from elsewhere holds stays in it."""
    left = _UNPACKED_MAX
    for member in tar:
        name = Path(member.name).name
        file = tar.extractfile(member) if member.isreg() and name not in ("", "..") else None
        if file is None:
            continue
        left -= member.size
        if left < 0:
            raise FabricdError(f"{path}: larger than {_UNPACKED_MAX >> 30} GiB unpacked")
        with (place / name).open("wb") as out:
            shutil.copyfileobj(file, out)
