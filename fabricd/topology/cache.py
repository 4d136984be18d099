"""The last picture of the fabric on disk: the process that may open the MAD device writes it, the others read it.

``FILE`` holds topology and slots (JSON), ``FILE.routes.npz`` the route table. Each is replaced whole; the routes first, so that a
reader who finds routes of another topology just waits for the other file.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fabricd.errors import BAD_DOCUMENT, FabricdError
from fabricd.model.topology import Topology
from fabricd.topology.golden import full_json, topology_from_json
from fabricd.topology.live import Picture
from fabricd.topology.minhop import assumed_routes
from fabricd.topology.routes import RouteTable
from fabricd.topology.slots import SlotBook

ROUTES_SUFFIX = ".routes.npz"


@dataclass(frozen=True, slots=True)
class Cached:
    """``gone``: devices that left and whose slots are still free (see ``slots.remember``)."""

    picture: Picture
    slots: SlotBook
    gone: Topology


def save_cache(path: str | Path, picture: Picture, slots: SlotBook, gone: Topology) -> None:
    """Raises OSError. Without routes in the picture an older route file is removed: it would be of another time."""
    routes = Path(f"{path}{ROUTES_SUFFIX}")
    if picture.routes is not None:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **picture.routes.arrays())
        _write(routes, buffer.getvalue())
    else:
        routes.unlink(missing_ok=True)
    document = {"topology": full_json(picture.topology), "slots": slots.to_json(), "gone": gone.to_json()}
    _write(Path(path), json.dumps(document, separators=(",", ":")).encode())


def _write(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}")
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, 0o644)
            file.write(data)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def load_cache(path: str | Path) -> Cached:
    """The picture and the books. Routes that are missing or of another topology are assumed (their ``source`` says so).

    Raises FabricdError when there is no cache or it is broken.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        topology = topology_from_json(document["topology"], Path(path).name)
        slots = SlotBook.from_json(document["slots"])
        gone = topology_from_json(document["gone"], Path(path).name)
    except OSError as error:
        raise FabricdError(f"no topology yet: {path}: {error.strerror}") from None
    except (*BAD_DOCUMENT, KeyError, TypeError) as error:
        raise FabricdError(f"{path}: not a topology cache: {error}") from None
    try:
        with np.load(f"{path}{ROUTES_SUFFIX}", allow_pickle=False) as arrays:
            routes = RouteTable.restored(topology, arrays)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        routes = assumed_routes(topology)
    return Cached(Picture(topology, routes), slots, gone)
