"""Text is data: what reaches a voice, and what a voice's samples become."""

import unicodedata

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from handrail.device.pyttsx3_voice import resampled
from handrail.device.sound import RATE_HZ
from handrail.device.spoken import MOST_CHARS, plain_text, rate_within, speech
from handrail.streams.errors import DeviceError


@given(text=st.text(max_size=3000))
@example("a\x00b\x1b[31m\u202egnirts\ud800")
@example("word " * 200)
@example("x" * 5000)
def test_what_a_voice_gets_is_short_and_holds_no_control_or_markup_characters(text: str) -> None:
    try:
        words = plain_text(text)
    except DeviceError as e:
        assert "\n" not in str(e)
        return
    assert 0 < len(words) <= MOST_CHARS
    assert not set(words) & set("<>[]{}|\\`")
    assert all(c == " " or unicodedata.category(c)[0] not in "CZ" for c in words)
    assert plain_text(words) == words
    words.encode()


@pytest.mark.parametrize("text", ["Stop. Step down.", "Obstacle, 2.5 metres, ten o'clock.", "Café à gauche?"])
def test_ordinary_phrases_pass_unchanged(text: str) -> None:
    assert plain_text(text) == text


def test_a_long_text_is_cut_between_words() -> None:
    assert set(plain_text("words " * 300).split()) == {"words"}


@pytest.mark.parametrize("text", ["", "  \n", "...", "<>", "\x00\x01"])
def test_a_text_without_words_is_an_error_not_silence(text: str) -> None:
    with pytest.raises(DeviceError, match="expected words to say"):
        plain_text(text)


def test_speech_is_trimmed_to_a_few_ms_and_leaves_room_for_an_earcon() -> None:
    samples = np.zeros(RATE_HZ, np.float32)
    samples[5000:6000] = 1.0
    sound = speech(samples)
    assert 1000 <= len(sound.samples) <= 1000 + RATE_HZ * 13 // 1000
    assert np.flatnonzero(sound.samples)[0] <= RATE_HZ * 3 // 1000
    assert sound.samples.max() == pytest.approx(0.64)
    with pytest.raises(ValueError, match="read-only"):
        sound.samples[0] = 1


def test_a_silent_rendering_is_an_error() -> None:
    with pytest.raises(DeviceError, match="no sound"):
        speech(np.zeros(5000, np.float32))


def test_rates_beyond_what_an_engine_speaks_are_held_to_the_nearest() -> None:
    assert [rate_within(r) for r in (-5, 80, 240, 450, 1000)] == [80, 80, 240, 450, 450]


@pytest.mark.parametrize("rate_hz", [8000, 16000, 22050, 44100, 48000])
def test_resampling_keeps_length_pitch_and_level(rate_hz: int) -> None:
    t = np.arange(rate_hz) / rate_hz
    out = resampled((0.5 * np.sin(2 * np.pi * 440 * t)).astype(np.float32), rate_hz)
    assert out.dtype == np.float32 and len(out) == RATE_HZ
    expected = 0.5 * np.sin(2 * np.pi * 440 * np.arange(RATE_HZ) / RATE_HZ)
    np.testing.assert_allclose(out, expected, atol=1e-3)
