"""What the earcons sound like: measured on their samples."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from handrail.device import earcons
from handrail.device.sound import F32, RATE_HZ, Sound
from handrail.device.spoken import SPEECH_GAIN

ALL = {
    "obstacle": earcons.obstacle(3.0, 0.0),
    "head": earcons.obstacle(3.0, 0.0, head=True),
    "drop_off": earcons.drop_off(3.0, 0.0),
    "blind": earcons.blind(),
    "degraded": earcons.degraded(),
    "again": earcons.again(),
    "hush_ack": earcons.hush_ack(),
    "heartbeat": earcons.heartbeat(),
}
distances = st.floats(0.0, 20.0)
bearings = st.floats(-180.0, 180.0)
contacts = st.none() | st.floats(0.0, 60.0)


def energy(samples: F32) -> float:
    return float((samples.astype(np.float64) ** 2).sum())


def spectrum(samples: F32) -> NDArray[np.float64]:
    """Power in third-octave bands from 100 Hz, as shares of the whole."""
    power = np.abs(np.fft.rfft(samples, 2**15)) ** 2
    hz = np.fft.rfftfreq(2**15, 1 / RATE_HZ)
    edges = 100 * 2 ** (np.arange(20) / 3)
    bands: NDArray[np.float64] = np.array([power[(hz >= a) & (hz < b)].sum() for a, b in itertools.pairwise(edges)])
    bands /= bands.sum()
    return bands


def pulses(sound: Sound) -> list[tuple[float, float, float]]:
    """(start_s, length_s, strongest_hz) of each stretch above a tenth of the peak."""
    level = np.abs(sound.samples).max(axis=1)
    smooth = np.convolve(level, np.ones(110) / 110, "same")
    loud = np.concatenate(([False], smooth > smooth.max() / 10, [False]))
    edges = np.flatnonzero(np.diff(loud.astype(int)))
    out = []
    for a, b in edges.reshape(-1, 2):
        power = np.abs(np.fft.rfft(sound.samples[a:b].sum(axis=1), 2**15))
        out.append((a / RATE_HZ, (b - a) / RATE_HZ, float(power.argmax() * RATE_HZ / 2**15)))
    return out


@settings(deadline=None)
@given(distance_m=distances, bearing_deg=bearings, contact_s=contacts, head=st.booleans())
def test_opposite_bearings_are_exact_mirror_images(
    distance_m: float, bearing_deg: float, contact_s: float | None, head: bool
) -> None:
    for one, other in (
        (
            earcons.obstacle(distance_m, bearing_deg, contact_s, head=head),
            earcons.obstacle(distance_m, -bearing_deg, contact_s, head=head),
        ),
        (earcons.drop_off(distance_m, bearing_deg, contact_s), earcons.drop_off(distance_m, -bearing_deg, contact_s)),
    ):
        np.testing.assert_array_equal(one.samples, other.samples[:, ::-1])


@settings(deadline=None)
@given(bearing_deg=st.floats(1.0, 180.0), distance_m=distances)
def test_what_is_on_the_right_is_louder_and_earlier_in_the_right_ear(bearing_deg: float, distance_m: float) -> None:
    left, right = earcons.obstacle(distance_m, bearing_deg).samples.T
    assert energy(right) > energy(left)
    starts = [int(np.flatnonzero(ear)[0]) if ear.any() else len(ear) for ear in (left, right)]
    assert starts[1] <= starts[0]


def test_the_delay_between_the_ears_is_that_of_a_head() -> None:
    left, right = earcons.obstacle(2.0, 45.0).samples.T
    lag = int(np.correlate(left, right, "full").argmax()) - (len(right) - 1)
    assert lag / RATE_HZ == pytest.approx(0.0875 / 343 * (np.sin(np.pi / 4) + np.pi / 4), abs=5e-5)


def test_what_is_ahead_is_the_same_in_both_ears() -> None:
    left, right = earcons.obstacle(2.0, 0.0).samples.T
    np.testing.assert_allclose(left, right, atol=1e-6)


@settings(deadline=None)
@given(distance_m=distances, bearing_deg=bearings, contact_s=contacts, mono=st.booleans(), head=st.booleans())
def test_warnings_are_short_and_never_clip_even_with_speech(
    distance_m: float, bearing_deg: float, contact_s: float | None, mono: bool, head: bool
) -> None:
    for sound in (
        earcons.obstacle(distance_m, bearing_deg, contact_s, head=head, mono=mono),
        earcons.drop_off(distance_m, bearing_deg, contact_s, mono=mono),
    ):
        assert sound.duration_s <= 0.35
        assert sound.samples.dtype == np.float32 and sound.samples.shape[1] == 2
        assert 0.15 < np.abs(sound.samples).max() <= 1 - SPEECH_GAIN + 1e-4
        assert pulses(sound)[0][1] <= 0.12


def test_pulses_come_faster_when_nearer_or_sooner() -> None:
    def spacing(sound: Sound) -> float:
        starts = [start for start, _, _ in pulses(sound)]
        return starts[1] - starts[0]

    by_distance = [spacing(earcons.obstacle(d, 0.0)) for d in (4.0, 3.0, 2.0, 1.0)]
    assert by_distance == sorted(by_distance, reverse=True) and len(set(by_distance)) == 4
    assert spacing(earcons.obstacle(4.0, 0.0, contact_s=1.0)) == spacing(earcons.obstacle(1.0, 0.0))
    assert len(pulses(earcons.obstacle(1.0, 0.0))) > len(pulses(earcons.obstacle(4.0, 0.0)))


@pytest.mark.parametrize("head", [False, True])
@pytest.mark.parametrize("distance_m", [4.0, 1.0])
def test_one_ear_hears_left_fall_right_rise_and_ahead_stay_level(distance_m: float, head: bool) -> None:
    def pitches(bearing_deg: float) -> list[float]:
        sound = earcons.obstacle(distance_m, bearing_deg, head=head, mono=True)
        np.testing.assert_array_equal(sound.samples[:, 0], sound.samples[:, 1])
        return [hz for _, _, hz in pulses(sound)]

    for bearing in (12.0, 30.0, 90.0):
        right, left = pitches(bearing), pitches(-bearing)
        assert right[1] / right[0] > 1.15 and left[0] / left[1] > 1.15
        assert right[0] == pytest.approx(left[1], rel=0.02) and right[1] == pytest.approx(left[0], rel=0.02)
    assert pitches(0.0)[0] == pytest.approx(pitches(0.0)[1], rel=0.01)
    assert pitches(60.0)[1] > pitches(15.0)[1] * 1.1


def test_a_drop_off_falls_and_says_its_side_to_one_ear_too() -> None:
    sound = earcons.drop_off(3.0, 0.0)
    assert len(pulses(sound)) == 3
    start_s, length_s, _ = pulses(sound)[0]
    ear = sound.samples[round(start_s * RATE_HZ) : round((start_s + length_s) * RATE_HZ), 0]
    first, last = np.array_split(ear, 2)
    assert spectrum(first).argmax() > spectrum(last).argmax() + 1
    left, right = (earcons.drop_off(3.0, b, mono=True).samples for b in (-30.0, 30.0))
    assert not np.array_equal(left, right)
    np.testing.assert_array_equal(left[:, 0], left[:, 1])


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(ALL, 2)))
def test_no_two_earcons_are_alike_in_pitch_or_in_rhythm(one: str, other: str) -> None:
    overlap = np.minimum(spectrum(ALL[one].samples[:, 0]), spectrum(ALL[other].samples[:, 0])).sum()
    a, b = pulses(ALL[one]), pulses(ALL[other])
    longest_a, longest_b = max(p[1] for p in a), max(p[1] for p in b)
    assert overlap < 0.5 or len(a) != len(b) or not 0.6 < longest_a / longest_b < 1.6


@pytest.mark.parametrize("other", [name for name in ALL if name != "blind"])
def test_the_blind_earcon_differs_from_every_other_in_pitch_and_in_rhythm(other: str) -> None:
    overlap = np.minimum(spectrum(ALL["blind"].samples[:, 0]), spectrum(ALL[other].samples[:, 0])).sum()
    assert overlap < 0.5
    rhythm, its = pulses(ALL["blind"]), pulses(ALL[other])
    assert len(its) != len(rhythm) or max(p[1] for p in its) < 0.5 * min(p[1] for p in rhythm)


@pytest.mark.parametrize("name", ALL)
def test_every_earcon_sounds_begins_and_ends_softly_and_fits_beside_speech(name: str) -> None:
    samples = ALL[name].samples
    assert ALL[name].name.startswith("earcon.")
    assert 0.02 < np.abs(samples).max() <= 1 - SPEECH_GAIN + 1e-4
    assert np.abs(samples[:3]).max() < 0.02 and np.abs(samples[-3:]).max() < 0.02
    assert spectrum(samples[:, 0])[:3].sum() < 0.1, "below 200 Hz the speakers of glasses are silent"


def test_the_heartbeat_is_the_softest() -> None:
    assert energy(ALL["heartbeat"].samples) < min(energy(s.samples) for n, s in ALL.items() if n != "heartbeat") / 2


def test_the_same_call_gives_the_same_samples() -> None:
    np.testing.assert_array_equal(earcons.obstacle(2.3, -17.0, 1.4).samples, earcons.obstacle(2.3, -17.0, 1.4).samples)
