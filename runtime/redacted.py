"""``Redacted``: the only kind of image that may be written to a file or sent anywhere.

A frame becomes one when it is on disk already (a recording, flagged ``source=file``) or shows nobody (the simulated
world, ``source=world``). Live frames can't become one: that takes a blurrer of faces and plates, which this project
doesn't have yet. Nothing else in Handrail encodes frames as image files; a test looks for it.
"""

from __future__ import annotations

from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from handrail.streams.errors import HandrailError
from handrail.streams.source import SourceInfo

_MADE_HERE = object()


class NotRedactedError(HandrailError):
    """Someone asked for an image of a live frame to be kept."""


@final
class Redacted:
    """An image that may leave memory. Made by ``from_recording``; holds its own read-only copy of the pixels."""

    __slots__ = ("_pixels", "_source")

    def __init__(self, pixels: NDArray[np.uint8], source: Literal["file", "world"], made_here: object = None) -> None:
        if made_here is not _MADE_HERE:
            raise TypeError("Redacted: expected Redacted.from_recording(pixels, info), got a direct call")
        self._pixels = pixels.copy()  # a frame's memory is reused for the next one
        self._pixels.flags.writeable = False
        self._source = source

    @classmethod
    def from_recording(cls, pixels: NDArray[np.uint8], info: SourceInfo) -> Redacted:
        """``pixels`` [H, W] grey or [H, W, 3] RGB of a frame that ``info``'s source delivered, or made from one.

        Raises NotRedactedError for a live source: its frames must be blurred first.
        """
        if not info.recorded:
            raise NotRedactedError(
                f"{info.uri}: expected frames of a recording or of the simulated world, got live ones; "
                "they can't be kept until they are blurred, and there is no blurrer yet"
            )
        if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3):
            raise TypeError(f"Redacted: expected uint8 [H, W] or [H, W, 3], got {pixels.dtype} {pixels.shape}")
        return cls(pixels, "world" if info.uri.startswith("world:") else "file", _MADE_HERE)

    @property
    def pixels(self) -> NDArray[np.uint8]:
        """[H, W] or [H, W, 3] RGB, read-only."""
        return self._pixels

    @property
    def source(self) -> Literal["file", "world"]:
        """Why it may be kept: its frame was on disk already, or simulated."""
        return self._source

    def jpeg(self, quality: int = 80) -> bytes:
        """The image as a JPEG file."""
        import cv2  # here: half of those who only name the type never encode

        pixels = self._pixels if self._pixels.ndim == 2 else self._pixels[:, :, ::-1]
        done, encoded = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, quality])
        if not done:
            raise HandrailError(f"image of shape {self._pixels.shape}: OpenCV could not encode it as JPEG")
        return bytes(encoded.tobytes())
