"""What a command says when something else than fabricd answers at its address."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fabricd.cli import main

COMMANDS = (
    ["nodes"],
    ["ports"],
    ["jobs"],
    ["verdicts"],
    ["explain", "x"],
    ["doctor", "--fleet"],
    ["doctor", "--fleet", "--json"],
)


def answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


@contextmanager
def answering(reply: bytes) -> Iterator[str]:
    """The address of a server that sends ``reply`` to everybody."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return  # closed below
                with client:
                    client.recv(65536)
                    client.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    "reply",
    [
        b"", b"220 mail.example ESMTP\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", answer(b"<html>"), answer(b"[]"),
        answer(b"{}"), answer(b"[" * 100_000), answer(b'{"nodes":[1],"ports":[1],"jobs":[1],"verdicts":[1],"fabric":"f"}'),
        answer(b"\xff\xfe"), b"HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\n{",
    ],
    ids=["nothing", "smtp", "cut", "html", "list", "empty", "deep", "shape", "bytes", "cut-error"],
)  # fmt: skip
def test_something_else_answers(command: list[str], reply: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(reply) as url:
        assert main([*command, "--url", url]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("fabricd: ")
    assert said.err.count("\n") == 1
    assert said.out == ""


@pytest.mark.parametrize(
    "url", ["http://[bad", "http://a b/", "http://", "http://h:x", "http://h:99999", "h:1", "http://h\n:1"]
)
def test_a_wrong_address(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nodes", "--url", url]) == 2
    assert capsys.readouterr().err.startswith("fabricd: --url ")
