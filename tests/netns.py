"""A veth pair of our own: real network interfaces for tests, in the namespace of the test process."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4


@contextmanager
def veth_pair() -> Iterator[tuple[str, str]]:
    """Names of the two ends, both up. Needs root."""
    tag = uuid4().hex[:7]
    one, two = f"fd{tag}a", f"fd{tag}b"
    subprocess.run(["ip", "link", "add", one, "type", "veth", "peer", "name", two], check=True)
    try:
        for name in (one, two):
            subprocess.run(["ip", "link", "set", name, "up"], check=True)
        yield one, two
    finally:
        subprocess.run(["ip", "link", "del", one], check=False, stderr=subprocess.DEVNULL)
