"""Plain HTTP to a model hub: where it is, the access token, redirects, and what its refusals mean for people. Knows no
model.

A token (``HF_TOKEN``, or the file in ``HF_TOKEN_PATH``, or where the hub's own client keeps it) is sent to the endpoint
alone, never where that redirects to, and never without TLS but to this machine.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from handrail.export.weights.registry import PIECE
from handrail.streams.errors import ConfigError, ModelError

TIMEOUT_S = 30.0  # without a byte
_AGAIN_LATER = (408, 425, 429, 500, 502, 503, 504)


def endpoint() -> str:
    """``HF_ENDPOINT`` or the hub itself. Raises ConfigError when it is no address."""
    url = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    try:
        parts = urlsplit(url)
    except ValueError:  # brackets that are no address
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        raise ConfigError("HF_ENDPOINT: expected an address like https://mirror.example, got another thing")
    return url


class Passing(Exception):
    """The other side failed in a way that may pass. Not an OSError, so that it isn't taken for one of the disk."""


class _Redirects(HTTPRedirectHandler):
    """Follows to a content server, without the token, and never out of TLS."""

    def redirect_request(
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if new.scheme not in ("http", "https") or (old.scheme, new.scheme) == ("https", "http"):
            raise HTTPError(req.full_url, code, f"a redirect to {new.scheme}, which is not followed", headers, fp)
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        token = req.unredirected_hdrs.get("Authorization")
        if request is not None and token and (old.scheme, old.netloc) == (new.scheme, new.netloc):
            request.add_unredirected_header("Authorization", token)
        return request


@contextlib.contextmanager
def opened(url: str, start: int = 0) -> Iterator[http.client.HTTPResponse]:
    """An answer with a body. Raises ModelError for a refusal, Passing for what may pass."""
    request = Request(url, headers={"User-Agent": "handrail", "Accept-Encoding": "identity"})  # noqa: S310 - endpoint()
    if start:
        request.add_header("Range", f"bytes={start}-")
    token = _token() if request.type == "https" or request.host.split(":")[0] in ("127.0.0.1", "localhost") else None
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        answer = build_opener(_Redirects).open(request, timeout=TIMEOUT_S)
    except HTTPError as e:
        with e:
            raise _refusal(url, e, token is not None) from None
    except (OSError, http.client.HTTPException) as e:
        raise Passing(_why(e)) from e
    with answer:
        yield answer


def read(answer: http.client.HTTPResponse) -> bytes:
    """What is there of the body; nothing at its end."""
    try:
        return answer.read1(PIECE)
    except (OSError, http.client.HTTPException, ValueError) as e:  # ValueError: a chunk of no length
        raise Passing(_why(e)) from e


def _refusal(url: str, e: HTTPError, with_token: bool) -> Exception:
    said = f"the hub answers {e.code} {' '.join(str(e.reason).split())}"
    if e.code in _AGAIN_LATER:
        return Passing(said)
    match e.code:
        case 401 | 403 if with_token:
            mend = "the access token does not allow it: accept the model's licence on its page with that account"
        case 401 | 403:
            mend = "accept the model's licence on its page and put an access token into HF_TOKEN"
        case 404:
            mend = "check --revision and HF_ENDPOINT"
        case 416:
            mend = "its file is shorter than its list says: check HF_ENDPOINT"
        case _:
            mend = "check HF_ENDPOINT"
    return ModelError(f"{url}: {said}; {mend}")


def _why(e: Exception) -> str:
    cause = e.reason if isinstance(e, URLError) and isinstance(e.reason, Exception) else e
    if isinstance(cause, TimeoutError):
        return f"nothing came for {TIMEOUT_S:.0f} s"
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__


def _token() -> str | None:
    """Raises ConfigError, without showing it, when it is none."""
    token, where = os.environ.get("HF_TOKEN", ""), "HF_TOKEN"
    if not token:
        home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
        path = Path(os.environ.get("HF_TOKEN_PATH") or home / "token")
        where = str(path)
        with contextlib.suppress(OSError):
            token = path.read_text("utf-8", "replace")
    if not re.fullmatch(r"[!-~]*", token := token.strip()):
        raise ConfigError(f"{where}: expected an access token, got something with spaces or strange letters in it")
    return token or None
