"""The mixer's sums, fades and limits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.device.mixer import FADE_FRAMES, KNEE, Mixer, Track
from handrail.device.sound import F32, Sound
from handrail.streams.errors import DeviceError


def noise(n: int, seed: int, level: float = 0.3) -> F32:
    return np.random.default_rng(seed).uniform(-level, level, n).astype(np.float32)


@settings(deadline=None)
@given(cuts=st.lists(st.integers(0, 700), max_size=20), cancel_at=st.integers(1, 2500))
def test_mixing_in_blocks_of_any_size_gives_the_same_samples(cuts: list[int], cancel_at: int) -> None:
    def mixed(blocks: list[int]) -> F32:
        mixer, cut = Mixer(), Track(Sound(noise(2000, 2, 0.9), "b"))
        mixer.add(Track(Sound(noise(1500, 1, 0.9), "a")))
        mixer.add(cut)
        out, taken = [], 0
        for n in blocks:
            out.append(mixer.mix(n))
            taken += n
            if taken == cancel_at:
                cut.cancel()
        return np.concatenate(out)

    edges = sorted({0, cancel_at, 3000, *np.cumsum([0, *cuts]).clip(0, 3000).tolist()})
    np.testing.assert_array_equal(mixed(np.diff(edges).tolist()), mixed([cancel_at, 3000 - cancel_at]))


def test_speech_is_heard_in_both_ears_and_silence_follows() -> None:
    mixer = Mixer()
    mixer.add(Track(Sound(noise(100, 3), "speech")))
    out = mixer.mix(150)
    np.testing.assert_array_equal(out[:100, 0], noise(100, 3))
    np.testing.assert_array_equal(out[:, 0], out[:, 1])
    assert not out[100:].any()
    assert mixer.idle


@given(level=st.floats(0.01, 4.0), seed=st.integers(0, 9))
def test_the_limiter_never_lets_a_sample_past_one_and_leaves_quiet_ones_alone(level: float, seed: int) -> None:
    mixer = Mixer()
    samples = noise(64, seed, level)
    mixer.add(Track(Sound(samples, "x")))
    out = mixer.mix(64)[:, 0]
    assert np.abs(out).max() <= 1.0
    quiet = np.abs(samples) <= KNEE
    np.testing.assert_array_equal(out[quiet], samples[quiet])
    assert (np.sign(out) == np.sign(samples)).all()


def test_a_cancelled_sound_fades_out_within_five_ms() -> None:
    mixer, track = Mixer(), Track(Sound(np.full(5000, 0.5, np.float32), "x"))
    mixer.add(track)
    mixer.mix(1000)
    track.cancel()
    out = mixer.mix(1000)[:, 0]
    assert not out[FADE_FRAMES:].any()
    assert (np.diff(out[:FADE_FRAMES]) < 0).all()
    assert out[0] > 0.49
    assert track.cancelled and track.done


def test_a_sound_cancelled_before_it_began_is_never_heard() -> None:
    mixer, track = Mixer(), Track(Sound(noise(500, 1), "x"))
    mixer.add(track)
    track.cancel()
    assert not mixer.mix(100).any()
    assert track.position == 0


def test_cancelling_what_has_ended_changes_nothing() -> None:
    mixer, track = Mixer(), Track(Sound(noise(50, 1), "x"))
    mixer.add(track)
    mixer.mix(100)
    track.cancel()
    assert not track.cancelled and track.end == 50


@pytest.mark.parametrize("samples", [np.zeros((5, 3), np.float32), np.zeros(5), np.zeros((2, 5), np.float32)])
def test_samples_of_another_layout_are_refused(samples: F32) -> None:
    with pytest.raises(DeviceError, match=r"expected \[N\] or \[N, 2\] float32 samples, got"):
        Track(Sound(samples, "x"))
