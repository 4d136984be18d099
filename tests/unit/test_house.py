"""The rules of the house: which room may import which, file lengths, and how small the agent stays."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "fabricd"
# In the order data flows: a room imports the rooms above it, never one below and never a sibling in the same place.
ORDER: tuple[tuple[str, ...], ...] = (
    ("model",), ("ib",), ("devices",), ("sources",), ("topology",), ("transport",), ("store",), ("flow",), ("detect",),
    ("control",), ("jobs",), ("placement",), ("doctor",), ("outputs",), ("ui",), ("twin",), ("daemons",), ("commands",),
)  # fmt: skip
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}
FREE = {"errors", "config", "logs"}  # any room may use these; they use the model at most
ADAPTERS = ("devices", "sources", "control/adapters")  # siblings inside do not import one another
SHARED = {"base", "__init__"}
MAX_LINES = 420
TABLES = ("model/catalogue/",)  # tables may be longer


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imports(path: Path, *, at_import_only: bool = False) -> Iterator[str]:
    """Dotted names a module imports; with ``at_import_only`` those that run when it is imported."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if at_import_only else list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_rooms_import_only_what_is_above_them(path: Path) -> None:
    room = room_of(path)
    if room in ("cli", "__main__", "__init__"):
        return
    for name in imports(path):
        parts = name.split(".")
        if parts[0] != "fabricd" or len(parts) < 2 or parts[1] == room:
            continue
        other = parts[1]
        if other in FREE or other == "__version__" or (other, room) == ("cli", "commands"):
            continue
        if room in FREE:
            assert other == "model", f"{name_of(path)} imports {name}: {room} is below every room"
            continue
        assert other in RANK, f"{name_of(path)} imports {name}: no room of that name"
        assert RANK[other] < RANK[room], f"{name_of(path)} imports {name}: {other} is below {room}"
        assert other != "twin" or room == "commands", f"{name_of(path)} imports the twin"


@pytest.mark.parametrize("place", ADAPTERS)
def test_sibling_adapters_do_not_know_each_other(place: str) -> None:
    """Packages of one adapter (devices/ufm/…) are one sibling; helpers that start with an adapter's name belong to it."""
    base = PACKAGE / place
    dotted = f"fabricd.{place.replace('/', '.')}"
    if place == "sources":
        return  # sources are small modules that share readers; what they must not know is MQTT (below)
    for path in sorted(base.rglob("*.py")):
        own = path.relative_to(base).parts[0].removesuffix(".py").split("_")[0]
        for name in imports(path):
            if name.startswith(f"{dotted}."):
                other = name.removeprefix(f"{dotted}.").split(".")[0].split("_")[0]
                assert other in (own, *SHARED) or own in SHARED, f"{name_of(path)} imports its sibling {name}"


def test_the_model_does_no_io_and_no_arrays() -> None:
    forbidden = {"numpy", "scipy", "socket", "asyncio", "pathlib", "os", "subprocess", "httpx", "aiomqtt", "pyroute2"}
    for path in sorted((PACKAGE / "model").rglob("*.py")):
        found = {name.split(".")[0] for name in imports(path)} & forbidden
        assert not found, f"{name_of(path)} imports {found}"


@pytest.mark.parametrize("room", ["sources", "detect", "flow", "topology"])
def test_mqtt_stays_in_the_transport(room: str) -> None:
    for path in sorted((PACKAGE / room).rglob("*.py")):
        found = {name.split(".")[0] for name in imports(path)} & {"aiomqtt", "paho", "iotcore"}
        assert not found, f"{name_of(path)} imports {found}"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_files_have_one_job(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    if not path.relative_to(PACKAGE).as_posix().startswith(TABLES):
        assert lines <= MAX_LINES, f"{lines} lines"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_modules_say_what_they_are(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), "no docstring"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_nothing_is_left_unfinished(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for word in ("TODO", "FIXME", "XXX:", "NotImplementedError"):
        assert word not in text, word
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ExceptHandler):
            broad = node.type is None or (
                isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")
            )
            reraises = any(isinstance(inner, ast.Raise) and inner.exc is None for inner in ast.walk(node))
            assert not broad or reraises, f"line {node.lineno}: catches everything"


AGENT = (
    "fabricd.cli", "fabricd.config.load", "fabricd.daemons.agent", "fabricd.daemons.agent_once", "fabricd.transport.publisher",
)  # fmt: skip


def test_the_agent_loads_no_heavy_package() -> None:
    """What a node agent imports, all commands of the parser included, is what the plain install has."""
    program = (
        f"import sys\nfor name in {AGENT!r}: __import__(name)\nfrom fabricd.cli import all_commands, build_parser\n"
    )
    program += "build_parser(all_commands())\nprint(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = set(
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    )
    heavy = {
        "numpy",
        "scipy",
        "starlette",
        "uvicorn",
        "httpx",
        "prometheus_client",
        "structlog",
        "iotcore",
        "textual",
        "pysnmp",
    }
    assert not loaded & heavy


def test_every_directory_of_code_is_a_package() -> None:
    for top in (PACKAGE, ROOT / "tests", ROOT / "benchmarks"):
        for directory in {path.parent for path in top.rglob("*.py")}:
            if "data" not in directory.parts:
                assert (directory / "__init__.py").exists(), directory


# Text from outside is read in these rooms; control/ and twin/ read what they wrote themselves, or answer for it on their own.
READERS = (
    "config",
    "ib",
    "sources",
    "topology",
    "transport",
    "store",
    "jobs",
    "placement",
    "doctor",
    "outputs",
    "commands",
)
DECODERS = {"json.loads", "json.load", "tomllib.loads", "msgspec.json.decode"}


@pytest.mark.parametrize("path", [path for path in modules() if room_of(path) in READERS], ids=name_of)
def test_hostile_documents_are_expected(path: Path) -> None:
    """A document of a thousand brackets is a RecursionError and no ValueError: whoever decodes one is ready for both."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = {
        id(node)
        for attempt in ast.walk(tree)
        if isinstance(attempt, ast.Try)
        and any(h.type is not None and "BAD_DOCUMENT" in ast.unparse(h.type) for h in attempt.handlers)
        for statement in attempt.body
        for node in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in DECODERS:
            assert id(node) in guarded, f"line {node.lineno}: {ast.unparse(node.func)} outside of except BAD_DOCUMENT"
