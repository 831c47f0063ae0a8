"""The classes of COCO in the order of the detector's scores, and which of them are said to a walker, by what name.

The sizes are those that such a thing can have, in metres: a "person" 0.3 m tall is a picture of one, or a cat; one of
2 m across is a wall with the wearer's own arm before it. Left out is what nobody walks into (forks, frisbees, kites),
what lies on or hangs above something else (laptops, clocks), and what is seen where it isn't: doors, panels and signs
close by are "refrigerator" (up to 0.65 in real frames), glass fronts "train", hands "umbrella".
"""

from __future__ import annotations

from dataclasses import dataclass

COCO = (
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat", "traffic light",
    "fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat", "dog", "horse", "sheep", "cow", "elephant",
    "bear", "zebra", "giraffe", "backpack", "umbrella", "handbag", "tie", "suitcase", "frisbee", "skis", "snowboard",
    "sports ball", "kite", "baseball bat", "baseball glove", "skateboard", "surfboard", "tennis racket", "bottle",
    "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple", "sandwich", "orange", "broccoli",
    "carrot", "hot dog", "pizza", "donut", "cake", "chair", "couch", "potted plant", "bed", "dining table", "toilet",
    "tv", "laptop", "mouse", "remote", "keyboard", "cell phone", "microwave", "oven", "toaster", "sink",
    "refrigerator", "book", "clock", "vase", "scissors", "teddy bear", "hair drier", "toothbrush",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Said:
    name: str
    least_m: float  # height over which it stands, when all of it is seen
    most_m: float
    widest_m: float  # from any side


SAID = {
    "person": Said("person", 0.7, 2.2, 1.1),
    "bicycle": Said("bicycle", 0.6, 1.6, 2.2),
    "car": Said("car", 1.0, 2.4, 5.5),
    "motorcycle": Said("motorcycle", 0.7, 1.8, 2.5),
    "bus": Said("bus", 2.0, 4.5, 14.0),
    "truck": Said("truck", 1.5, 4.5, 14.0),
    "fire hydrant": Said("hydrant", 0.4, 1.3, 0.7),
    "parking meter": Said("parking meter", 0.9, 2.0, 0.8),
    "bench": Said("bench", 0.3, 1.4, 3.0),
    "cat": Said("cat", 0.15, 0.6, 0.8),
    "dog": Said("dog", 0.2, 1.1, 1.4),
    "horse": Said("horse", 1.2, 2.6, 2.8),
    "suitcase": Said("suitcase", 0.3, 1.3, 1.0),
    "chair": Said("chair", 0.4, 1.5, 1.2),
    "couch": Said("couch", 0.4, 1.4, 3.5),
    "potted plant": Said("plant", 0.25, 2.4, 1.8),
    "bed": Said("bed", 0.3, 1.7, 3.2),
    "dining table": Said("table", 0.3, 1.4, 3.5),
    "toilet": Said("toilet", 0.3, 1.2, 0.9),
}
