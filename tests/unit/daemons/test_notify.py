import os
import socket
from pathlib import Path

from fabricd.daemons.notify import Notifier


def listener(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.bind(str(path))
    sock.settimeout(5)
    return sock


def test_messages_reach_the_manager(tmp_path: Path) -> None:
    with listener(tmp_path / "n") as manager:
        notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "n"), "WATCHDOG_USEC": "3000000"})
        notifier.ready("two\nlines")
        assert manager.recv(200) == b"READY=1\nSTATUS=two lines"
        notifier.reloading()
        assert manager.recv(200).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        notifier.alive()
        notifier.alive()  # within the same period: not sent again
        notifier.stopping()
        assert [manager.recv(200), manager.recv(200)] == [b"WATCHDOG=1", b"STOPPING=1"]
        notifier.close()


def test_abstract_socket() -> None:
    name = f"fabricd-notify-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name)
        manager.settimeout(5)
        Notifier({"NOTIFY_SOCKET": "@" + name}).status("up")
        assert manager.recv(200) == b"STATUS=up"


def test_without_a_manager_nothing_happens(tmp_path: Path) -> None:
    Notifier({}).ready()
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "absent")}).ready()


def test_watchdog_is_for_the_named_process_only() -> None:
    assert Notifier({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": str(os.getpid())}).watchdog_s == 2.0
    assert Notifier({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"}).watchdog_s is None
    assert Notifier({"WATCHDOG_USEC": "soon"}).watchdog_s is None


def test_a_manager_that_does_not_listen_holds_nobody_up(tmp_path: Path) -> None:
    """The queue of a unix socket is ten messages long; the eleventh must not stop the daemon."""
    with listener(tmp_path / "n"):
        notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "n"), "WATCHDOG_USEC": "1"})
        for _ in range(50):
            notifier.alive()
            notifier.status("busy")
        notifier.stopping()
