"""A model hub on this machine that can be told to misbehave, as the tests of fetching need it."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ID = "owner/model"
WEIGHTS = bytes(range(256)) * 2000  # 512,000 bytes


@dataclass
class LoopbackHub:
    """``with LoopbackHub() as hub``: serves ``files`` as a repository of a hub, and says what it was asked for."""

    files: dict[str, bytes] = field(default_factory=lambda: {
        "config.json": b'{"model_type": "made-up"}', "model.safetensors": WEIGHTS, "tokenizer.json": b"{}",
        "pytorch_model.bin": b"\x80\x04K\x01.", "modeling.py": b"import os", "onnx/model.json": b"{}",
        "README.md": b"x",
    })  # fmt: skip
    commit: str = COMMIT
    listed: dict[str, dict[str, Any]] = field(default_factory=dict)  # what the list says otherwise of a file
    listing: bytes | None = None  # instead of the list
    served: dict[str, bytes] = field(default_factory=dict)  # what comes instead of a file's content
    broken_at: dict[str, list[int]] = field(default_factory=dict)  # bytes of each answer's body, one after another
    stall_at: dict[str, int] = field(default_factory=dict)  # bytes after which nothing more comes
    status: dict[str, int] = field(default_factory=dict)
    redirect: dict[str, str] = field(default_factory=dict)
    no_ranges: bool = False
    headers: dict[str, str] = field(default_factory=dict)  # of every answer with a file
    asked: list[tuple[str, str]] = field(default_factory=list)  # file, range
    tokens: list[tuple[str, str | None]] = field(default_factory=list)  # path, authorization

    def __enter__(self) -> Self:
        hub, self.released = self, threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                _answer(hub, self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def ranges(self, file: str) -> list[str]:
        return [asked for name, asked in self.asked if name == file]


def _answer(hub: LoopbackHub, request: BaseHTTPRequestHandler) -> None:
    hub.tokens.append((request.path, request.headers.get("Authorization")))
    path = request.path.split("?")[0]
    if path == f"/api/models/{ID}/revision/{COMMIT}":
        if "api" in hub.status:
            _send(request, hub.status["api"], b"")
        else:
            _send(request, 200, hub.listing if hub.listing is not None else _list(hub))
        return
    found = re.fullmatch(f"/(?:{ID}/resolve/{COMMIT}|cdn)/(.+)", path)
    file = found[1] if found else ""
    if path.startswith("/cdn/") or file not in hub.redirect:
        _file(hub, request, file)
    else:
        hub.asked.append((file, "redirected"))
        request.send_response(302)
        request.send_header("Location", hub.redirect[file])
        request.end_headers()


def _list(hub: LoopbackHub) -> bytes:
    siblings = []
    for name, content in hub.files.items():
        about: dict[str, Any] = {"rfilename": name, "size": len(content)}
        if name.endswith(".safetensors"):
            about["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
        else:
            about["blobId"] = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        siblings.append(about | hub.listed.get(name, {}))
    return json.dumps({"id": ID, "sha": hub.commit, "siblings": siblings, "gated": False}).encode()


def _file(hub: LoopbackHub, request: BaseHTTPRequestHandler, file: str) -> None:
    asked = request.headers.get("Range", "")
    hub.asked.append((file, asked))
    if file in hub.status or file not in hub.files:
        _send(request, hub.status.get(file, 404), b"")
        return
    content = hub.served.get(file, hub.files[file])
    start = int(asked[6:-1]) if asked and not hub.no_ranges else 0
    if start >= len(content) > 0:
        _send(request, 416, b"")
        return
    headers = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if start else {}
    body = content[start:]
    limits = hub.broken_at.get(file)
    limit = limits.pop(0) if limits else hub.stall_at.get(file, len(body))
    _send(request, 206 if start else 200, body, limit, headers | hub.headers)
    if file in hub.stall_at:
        request.wfile.flush()
        hub.released.wait()


def _send(
    request: BaseHTTPRequestHandler, status: int, body: bytes, limit: int | None = None,
    headers: dict[str, str] | None = None,
) -> None:  # fmt: skip
    """``limit``: break off after so many bytes of the body."""
    request.send_response(status)
    for name, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
        if value:
            request.send_header(name, value)
    request.end_headers()
    request.wfile.write(body[:limit])
