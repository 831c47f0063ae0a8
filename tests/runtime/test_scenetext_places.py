"""Signs over time: one sign is one entry, wherever the head turns; nothing grows without bound."""

from __future__ import annotations

import math
import time

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from mirror import mirrored
from signs import line_at, rig, sight

from handrail.runtime.scenetext.places import (
    FORGET_S,
    MOST_PLACES,
    Places,
    distance,
    similarity,
)
from handrail.runtime.scenetext.sights import Sight, pixel_of, sights
from handrail.streams.upright import sensor_px, upright

S = 1_000_000_000
anything = st.tuples(st.text(max_size=200), st.floats(-180, 180), st.floats(0, 1))  # text, bearing, confidence
short = st.text("abcdeXYZ 12", max_size=12)


def by_rows(a: str, b: str) -> int:
    """The textbook's edit distance, to hold the fast one against."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


@given(short, short)
def test_edit_distance_is_the_textbooks(a: str, b: str) -> None:
    assert distance(a, b) == by_rows(a, b)


@given(short, short)
def test_similarity_is_symmetric_and_between_nothing_and_all(a: str, b: str) -> None:
    assert similarity(a, b) == similarity(b, a) and 0 <= similarity(a, b) <= 1
    assert similarity(a, a.upper()) == 1


@given(st.lists(st.floats(0.8, 0.99), min_size=2, max_size=12), st.floats(-2.5, 2.5), st.data())
def test_one_sign_in_many_pictures_is_one_entry_with_its_best_reading(
    confidences: list[float], jitter_deg: float, data: st.DataObject
) -> None:
    places, told = Places(), []
    possible = st.sampled_from(["Ticket office", "Ticket offce", "TICKET OFFICE", "Tickel office"])
    readings = [data.draw(possible) for _ in confidences]
    for i, (text, confidence) in enumerate(zip(readings, confidences, strict=True)):
        told += places.see(i * S, [sight(text, 10.0 + jitter_deg * (i % 2), confidence=confidence)])
    (kept,) = places.now(len(confidences) * S - S)
    assert kept.looks == len(confidences) and {p.id for p in told} == {kept.id}
    best = confidences.index(max(confidences))
    assert kept.confidence == max(confidences) and kept.text == readings[best]


@given(st.lists(st.floats(-170, 170), min_size=2, max_size=10))
def test_a_turning_head_does_not_move_a_sign(headings_deg: list[float]) -> None:
    places, azimuth = Places(), 20.0
    for i, heading in enumerate(headings_deg):
        bearing = (azimuth + heading + 180) % 360 - 180  # the nose turns to the left: the sign goes to the right
        places.see(i * S, [sight("EXIT", bearing)], math.radians(heading))
    (kept,) = places.now(len(headings_deg) * S - S)
    assert math.isclose(kept.bearing_from(0.0), azimuth, abs_tol=1e-6)


@given(st.permutations(range(4)))
def test_the_order_of_lines_in_a_picture_does_not_matter(order: list[int]) -> None:
    exits = [sight("EXIT", -30.0), sight("EXIT", 30.0, confidence=0.9)]
    lines = [*exits, sight("Push", 0.0, confidence=0.8), sight("Pull", 0.0, -20.0)]
    places, same = Places(), Places()
    for i in range(3):
        places.see(i * S, lines)
        same.see(i * S, [lines[j] for j in order])
    assert places.now(2 * S) == same.now(2 * S)
    assert len(places) == 4 and all(p.looks == 3 for p in places.now(2 * S))


def test_equal_signs_far_apart_are_two_and_stay_two() -> None:
    places = Places()
    for i in range(4):
        places.see(i * S, [sight("EXIT", -20.0 + i), sight("EXIT", 20.0 + i)])
    assert sorted(p.looks for p in places.now(3 * S)) == [4, 4]


def test_different_signs_at_one_place_are_two() -> None:
    places = Places()
    places.see(0, [sight("Gate B12", 5.0)])
    places.see(S, [sight("Toilets", 5.0)])
    assert len(places) == 2


def test_fragments_belong_to_the_whole_and_the_whole_replaces_a_fragment() -> None:
    places = Places()
    (first,) = places.see(0, [sight("Push to", -3.0)])
    (whole,) = places.see(S, [sight("Push to open", 0.0, confidence=0.9)])
    assert whole.id == first.id and whole.text == "Push to open"
    assert places.see(2 * S, [sight("Push to", -3.0), sight("open", 4.0, confidence=0.9)]) == []
    assert [p.text for p in places.now(2 * S)] == ["Push to open"]


def test_text_is_forgotten_after_a_while_and_comes_back_as_new() -> None:
    places = Places()
    (before,) = places.see(0, [sight("EXIT")])
    assert places.now(int(FORGET_S * S)) and not places.now(int(FORGET_S * S) + 1)
    (after,) = places.see(int(FORGET_S * S) + 1, [sight("EXIT")])
    assert after.id > before.id and after.looks == 1


def test_a_seam_forgets_everything_and_no_id_comes_twice() -> None:
    places = Places()
    (before,) = places.see(10 * S, [sight("EXIT")])
    places.seam()
    assert places.now(10 * S) == [] and len(places) == 0
    (after,) = places.see(0, [sight("EXIT")])  # time may run backwards over a seam
    assert after.id != before.id


@settings(max_examples=20)
@given(st.lists(st.lists(anything, max_size=60), max_size=5))
def test_any_text_keeps_places_bounded_with_ids_of_their_own(pictures: list[list[tuple[str, float, float]]]) -> None:
    places = Places()
    for i, lines in enumerate(pictures):
        places.see(i * S, [sight(text, bearing, confidence=c) for text, bearing, c in lines])
        kept = places.now(i * S)
        assert len(places) <= MOST_PLACES and len({p.id for p in kept}) == len(kept)
        assert all(len(p.text) <= 1000 and p.confidence >= 0.5 for p in kept)


def test_a_wall_full_of_text_takes_a_few_milliseconds() -> None:
    places, took = Places(), []
    for i in range(8):
        wall = [sight(f"{k * 7919 + i:0>64}" * 3, 0.2 * k, confidence=0.9) for k in range(60)]
        began = time.perf_counter()
        places.see(i * S, wall)
        took.append(time.perf_counter() - began)
    assert min(took[1:]) < 0.05  # 5 ms on a quiet machine; ten times that with others at work


# ---- where a line is -------------------------------------------------------------------------------------------------


def px_at(generation: int, bearing_deg: float, elevation_deg: float, side: int = 704) -> tuple[float, float]:
    return pixel_of((bearing_deg, elevation_deg), rig(generation), *picture_size(generation, side))


def picture_size(generation: int, side: int) -> tuple[int, int]:
    camera = rig(generation).cameras["camera-rgb"]
    high, wide = (camera.width, camera.height) if generation == 1 else (camera.height, camera.width)
    return round(high * side / wide), side


def seen_at(generation: int, x: float, y: float, side: int = 704) -> Sight:
    (found,) = sights([line_at("EXIT", x, y)], rig(generation), *picture_size(generation, side))
    return found


@given(st.sampled_from([1, 2]), st.floats(-30, 30), st.floats(-25, 25))
def test_a_pixel_and_its_direction_belong_together(generation: int, bearing_deg: float, elevation_deg: float) -> None:
    found = seen_at(generation, *px_at(generation, bearing_deg, elevation_deg))
    assert math.isclose(found.bearing_deg, bearing_deg, abs_tol=0.01)
    assert math.isclose(found.elevation_deg, elevation_deg, abs_tol=0.01)
    assert 1 < found.width_deg < 12 and 0.5 < found.height_deg < 6


@given(st.sampled_from([1, 2]), st.floats(2, 25))
def test_right_in_the_upright_picture_is_right_of_the_nose_and_up_is_up(generation: int, off_deg: float) -> None:
    x0, y0 = px_at(generation, 0.0, 0.0)
    assert px_at(generation, off_deg, 0.0)[0] > x0 > px_at(generation, -off_deg, 0.0)[0]
    assert px_at(generation, 0.0, off_deg)[1] < y0 < px_at(generation, 0.0, -off_deg)[1]
    assert seen_at(generation, x0 + 100, y0).bearing_deg > 0 > seen_at(generation, x0 - 100, y0).bearing_deg


@given(st.floats(-30, 30), st.floats(-25, 25))
def test_in_a_mirror_sides_change_and_heights_do_not(bearing_deg: float, elevation_deg: float) -> None:
    """Gen 2's picture is upright as it is: mirrored left to right, as ``mirror`` does to a session."""
    height, width = picture_size(2, 704)
    x, y = px_at(2, bearing_deg, elevation_deg)
    (found,) = sights([line_at("EXIT", width - 1 - x, y)], mirrored(rig(2)), height, width)
    assert math.isclose(found.bearing_deg, -bearing_deg, abs_tol=0.01)
    assert math.isclose(found.elevation_deg, elevation_deg, abs_tol=0.01)


def test_gen_1_native_pixels_are_those_of_the_picture_before_its_quarter_turn() -> None:
    native = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    turned = upright(native, 1)
    for y in range(turned.shape[0]):
        for x in range(turned.shape[1]):
            u, v = sensor_px(np.array([x, y], dtype=np.float64), 1, turned.shape[1]).astype(int)
            assert (native[v, u] == turned[y, x]).all()
    assert upright(native, 2) is native
