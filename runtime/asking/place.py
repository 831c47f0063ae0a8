"""Where the wearer was when something was told, and what was known then: by these "moved", "turned", "new" are judged.

Level frame, metres; after a seam that frame is another one, and nothing from before may be compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from handrail.runtime.scene import Obstacle, Scene, Wearer, wrap_deg
from handrail.runtime.speech.alerts import SAME_PLACE_M

MOST_KNOWN = 64


@dataclass(frozen=True, slots=True)
class Place:
    """A pose to compare with later. The heading is of travel while walking, of the nose while standing still."""

    x_m: float
    y_m: float
    heading_rad: float

    @staticmethod
    def of(w: Wearer) -> Place:
        return Place(w.x_m, w.y_m, w.reference_rad)

    def moved_m(self, w: Wearer) -> float:
        return math.hypot(w.x_m - self.x_m, w.y_m - self.y_m)

    def turned_deg(self, w: Wearer) -> float:
        """A head that turns while its wearer walks straight has not."""
        return abs(wrap_deg(math.degrees(w.reference_rad - self.heading_rad)))


@dataclass(frozen=True, slots=True)
class Known:
    """A thing that was in the scene: the same track, or another one in the same place, is not new."""

    id: int
    x_m: float
    y_m: float
    label: str | None

    def fits(self, o: Obstacle, within_m: float = SAME_PLACE_M) -> bool:
        return o.id == self.id or math.hypot(o.x_m - self.x_m, o.y_m - self.y_m) <= within_m


def confirmed(scene: Scene) -> list[Obstacle]:
    return [o for o in scene.obstacles if o.confirmed]


def with_known(known: tuple[Known, ...], obstacles: Iterable[Obstacle]) -> tuple[Known, ...]:
    """These too, newest last. A track takes its own place; what is gone stays known until there are too many."""
    new = [Known(o.id, o.x_m, o.y_m, o.label) for o in obstacles]
    tracks = {(k.id, k.label) for k in new}
    return (*(k for k in known if (k.id, k.label) not in tracks), *new)[-MOST_KNOWN:]


def ahead(o: Obstacle, w: Wearer) -> tuple[float, float]:
    """(along_m, across_m) from the wearer along the reference heading; across positive to the right."""
    distance_m, bearing_deg = o.seen_from(w)
    angle = math.radians(bearing_deg)
    # Rounded, so that no rounding error decides what is left and what is right.
    return round(distance_m * math.cos(angle), 6), round(distance_m * math.sin(angle), 6)
