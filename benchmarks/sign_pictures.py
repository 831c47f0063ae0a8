"""Pictures with signs in them, drawn from a seed, and the words on them: what ``handrail bench signs`` reads.

A sign is drawn large, turned in space and brought down to its size in the picture by averaging, as a lens does; then
the whole picture is blurred, darkened, given noise and compressed. Sizes are the height of a capital letter in pixels.
Not a model of one camera: curved lines, glare, motion along a path and real lettering are left out, so that figures
compare ways of reading and don't promise a distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

U8 = NDArray[np.uint8]
F64 = NDArray[np.float64]

SIDE_PX = 1408  # of a picture: Gen 1's RGB camera, upright
ROWS, COLUMNS = 6, 2  # of places for signs
SPREAD_PX = 480  # side of the square in the middle where they stand: a wearer looks at what is to be read
DRAWN_PX = 64  # height of a capital letter on the sign as it is drawn
HEIGHTS_PX = (6, 8, 10, 12, 16, 24)
CONDITIONS = ("plain", "blurred", "dim", "slanted")
PHRASES = (
    "EXIT", "Push to open", "Mind the step", "Platform 4", "Room 217", "Pull", "No smoking", "Gate B12", "Toilets",
    "Fire Extinguisher", "Way out", "Staff only", "Meeting Room", "Wet floor", "Reception", "Lift to floor 3",
    "Emergency", "Bus 42", "Ticket office", "Kitchen", "Private", "Entrance", "Please knock", "Danger", "Parking",
    "Press button", "Out of order", "Car park B", "Bakery", "Pharmacy", "Stairs", "Track 11", "Keep left", "Waiting",
    "Hot water", "Library", "Elevator", "Door 5", "Cash desk", "Information",
)  # fmt: skip
COLOURS = (  # board, letters
    ((245, 245, 240), (20, 20, 20)), ((0, 105, 60), (245, 245, 245)), ((20, 60, 140), (240, 240, 240)),
    ((170, 20, 25), (245, 240, 240)), ((235, 195, 20), (15, 15, 15)), ((90, 90, 95), (225, 225, 225)),
)  # fmt: skip
FONTS = ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSerif.ttf", "DejaVuSansMono.ttf")  # those of matplotlib


@dataclass(frozen=True, slots=True)
class SignPicture:
    pixels: U8  # [H, W, 3] RGB
    words: tuple[str, ...]  # that stand in it
    height_px: float  # of its capital letters
    condition: str


def sign_picture(seed: int, height_px: float, condition: str) -> SignPicture:
    """One picture with ``ROWS * COLUMNS`` signs of one size. The same arguments give the same picture."""
    rng = np.random.default_rng([seed, round(height_px * 10), CONDITIONS.index(condition)])
    canvas = _wall(rng)
    cell = np.array([SPREAD_PX / COLUMNS, SPREAD_PX / ROWS])
    fitting = [phrase for phrase in PHRASES if (0.68 * len(phrase) + 1) * height_px < cell[0]]
    chosen = [fitting[i] for i in rng.choice(len(fitting), ROWS * COLUMNS, replace=False)]
    for place, phrase in enumerate(chosen):
        row, column = divmod(place, COLUMNS)
        centre = (SIDE_PX - SPREAD_PX) / 2 + (np.array([column + 0.5, row + 0.5]) + rng.uniform(-0.06, 0.06, 2)) * cell
        _put(canvas, _board(phrase, rng), centre, height_px, condition == "slanted", rng)
    words = tuple(word for phrase in chosen for word in phrase.split())
    return SignPicture(_taken(canvas, condition, rng), words, height_px, condition)


def shifted(picture: SignPicture, seed: int, count: int) -> list[U8]:
    """The same view again, as a head that isn't quite still gives it: moved by up to 2 px, with noise of its own."""
    rng = np.random.default_rng(seed)
    moves = rng.uniform(-2, 2, (count, 2))
    frames = []
    for move in moves:
        to = np.array([[1, 0, move[0]], [0, 1, move[1]]])
        moved = cv2.warpAffine(picture.pixels, to, (SIDE_PX, SIDE_PX), borderMode=cv2.BORDER_REPLICATE)
        frames.append(_u8(moved + rng.normal(0, 5, moved.shape)))
    return frames


def _wall(rng: np.random.Generator) -> F64:
    """[H, W, 3]: uneven light, blotches, and boxes that are no signs."""
    coarse = rng.normal(0, 10, (12, 12, 3)) + rng.uniform(80, 190)
    wall = np.asarray(cv2.resize(coarse, (SIDE_PX, SIDE_PX), interpolation=cv2.INTER_CUBIC), dtype=np.float64)
    fine = cv2.resize(rng.normal(0, 5, (300, 300)), (SIDE_PX, SIDE_PX), interpolation=cv2.INTER_LINEAR)
    wall = wall + fine[..., None]
    for _ in range(14):
        x, y = (int(v) for v in rng.integers(0, SIDE_PX, 2))
        w, h = (int(v) for v in rng.integers(20, 260, 2))
        cv2.rectangle(wall, (x, y), (x + w, y + h), [float(c) for c in rng.uniform(30, 220, 3)], -1)
    return wall


def _board(text: str, rng: np.random.Generator) -> U8:
    """The sign seen from straight in front, ``DRAWN_PX`` tall capitals."""
    from PIL import Image, ImageDraw

    font = _font(FONTS[rng.integers(len(FONTS))])
    left, top, right, bottom = font.getbbox(text)
    margin = DRAWN_PX // 2
    board, letters = COLOURS[rng.integers(len(COLOURS))]
    image = Image.new("RGB", (round(right - left) + 2 * margin, round(bottom - top) + 2 * margin), board)
    ImageDraw.Draw(image).text((margin - left, margin - top), text, fill=letters, font=font)
    return np.asarray(image, dtype=np.uint8)


@cache
def _font(name: str) -> Any:
    """In the size at which an H is ``DRAWN_PX`` tall."""
    import matplotlib
    from PIL import ImageFont

    path = str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name)
    trial = ImageFont.truetype(path, 100)
    _, top, _, bottom = trial.getbbox("H")
    return ImageFont.truetype(path, round(100 * DRAWN_PX / (bottom - top)))


def _put(canvas: F64, board: U8, centre: F64, height_px: float, slanted: bool, rng: np.random.Generator) -> None:
    """Bring the board down to size into the canvas: drawn four times too large there and averaged."""
    fine = 4
    scale = fine * height_px / DRAWN_PX
    h, w = board.shape[:2]
    corners = (np.array([[0, 0], [w, 0], [w, h], [0, h]]) - (w / 2, h / 2)) * scale
    yaw_rad, roll_rad = rng.uniform((-0.7, -0.25), (0.7, 0.25)) if slanted else (0.0, rng.uniform(-0.05, 0.05))
    corners = _turned(corners, yaw_rad, roll_rad)
    reach = np.ceil(np.abs(corners).max(axis=0) / fine).astype(int) + 2  # px of the canvas, to each side
    middle = np.round(centre).astype(int)
    size = 2 * reach * fine
    smooth = cv2.GaussianBlur(board, (0, 0), max(0.3, 0.4 / scale)) if scale < 1 else board
    to = cv2.getPerspectiveTransform(
        np.array([[0, 0], [w, 0], [w, h], [0, h]], dtype=np.float32), (corners + size / 2).astype(np.float32)
    )
    layers = (cv2.warpPerspective(layer, to, size.tolist()) for layer in (smooth.astype(np.float64), np.ones((h, w))))
    flat, cover = (cv2.resize(layer, (2 * reach).tolist(), interpolation=cv2.INTER_AREA) for layer in layers)
    x0, y0 = np.maximum(middle - reach, 0)
    x1, y1 = np.minimum(middle + reach, SIDE_PX)
    dx, dy = np.maximum(reach - middle, 0)
    part = np.s_[dy : dy + y1 - y0, dx : dx + x1 - x0]
    region = canvas[y0:y1, x0:x1]
    region += cover[part][..., None] * (0.9 * flat[part] - region)


def _turned(corners: F64, yaw_rad: float, roll_rad: float) -> F64:
    """Corners [4, 2] of a flat sign as seen after a turn about its upright axis and one in the picture's plane."""
    away = 6 * np.abs(corners).max()  # how far off the eye is: sets how strong the perspective is
    depth = 1 + corners[:, 0] * np.sin(yaw_rad) / away
    seen = np.stack([corners[:, 0] * np.cos(yaw_rad), corners[:, 1]], axis=1) / depth[:, None]
    c, s = np.cos(roll_rad), np.sin(roll_rad)
    return np.asarray(seen @ np.array([[c, s], [-s, c]]))


def _taken(canvas: F64, condition: str, rng: np.random.Generator) -> U8:
    """As a camera delivers it: lens, light, noise, JPEG."""
    sigma_px, light, noise = {"blurred": (1.5, 1.0, 3.0), "dim": (0.6, 0.18, 4.0)}.get(condition, (0.6, 1.0, 3.0))
    seen = cv2.GaussianBlur(canvas, (0, 0), sigma_px) * light
    seen = seen + rng.normal(0, noise, seen.shape)
    done, packed = cv2.imencode(".jpg", _u8(seen)[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 85])
    assert done
    opened = cv2.imdecode(packed, cv2.IMREAD_COLOR)
    assert opened is not None
    return np.ascontiguousarray(opened[..., ::-1], dtype=np.uint8)


def _u8(values: Any) -> U8:
    return np.asarray(np.clip(np.rint(values), 0, 255), dtype=np.uint8)
