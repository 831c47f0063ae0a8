"""Where Handrail keeps what can be made or fetched again: ``$HANDRAIL_CACHE``, else ``handrail`` in the user's cache
folder (``$XDG_CACHE_HOME``, else ``~/.cache``). Knows nothing of what lies there; deleting it costs time alone."""

from __future__ import annotations

import os
from pathlib import Path

from handrail.streams.errors import OutputError


def cache_folder(kind: str) -> Path:
    """The folder for one kind of things, made when missing. Raises OutputError when it can't be."""
    root = os.environ.get("HANDRAIL_CACHE")
    user = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(root) if root else (Path(user) if user else Path.home() / ".cache") / "handrail") / kind
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise OutputError(
            f"{folder}: can't be made ({e.strerror}); set HANDRAIL_CACHE or XDG_CACHE_HOME to a folder with room"
        ) from e
    return folder
