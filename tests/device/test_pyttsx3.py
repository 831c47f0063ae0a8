"""pyttsx3 for real, with the espeak-ng library of espeakng-loader or the system's."""

import ctypes.util
import os
from importlib.util import find_spec

import numpy as np
import pytest

from handrail.device import pyttsx3_voice
from handrail.device.pyttsx3_voice import Pyttsx3Voice
from handrail.device.sound import Sound
from handrail.streams.clock import now_ns, run_virtual
from handrail.streams.errors import DeviceError, MissingDependencyError

if find_spec("pyttsx3") is None:
    pytest.skip("needs pyttsx3: pip install 'handrail[pyttsx3]'", allow_module_level=True)

system_espeak = ctypes.util.find_library("espeak-ng") or ctypes.util.find_library("espeak")


async def rendered(text: str, rate_wpm: int) -> Sound:
    voice = Pyttsx3Voice()
    try:
        return await voice.render(text, rate_wpm)
    finally:
        await voice.close()


@pytest.mark.skipif(
    find_spec("espeakng_loader") is None and not system_espeak, reason="pyttsx3 finds no espeak-ng: apt or pip has it"
)
def test_a_phrase_has_energy_and_is_the_same_every_time_and_time_stands_still() -> None:
    async def main() -> None:
        first = await rendered("Stop. Step down.", 240)
        assert 0.6 < first.duration_s < 1.3
        assert 0.05 < np.sqrt((first.samples**2).mean()) < np.abs(first.samples).max() <= 0.64
        np.testing.assert_array_equal((await rendered("Stop. Step down.", 240)).samples, first.samples)
        assert (await rendered("Stop. Step down.", 450)).duration_s < 0.7 * first.duration_s
        assert now_ns() == 0

    run_virtual(main())


@pytest.mark.skipif(system_espeak is not None, reason="the system has an espeak library")
def test_a_missing_library_names_the_command_that_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyttsx3_voice, "_environment", lambda: dict(os.environ))
    with pytest.raises(MissingDependencyError, match=r"pip install 'handrail\[speech\]'"):
        run_virtual(rendered("Stop.", 240))


def test_an_engine_that_fails_is_one_line_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyttsx3_voice, "_environment", lambda: {**os.environ, "PYTHONHOME": "/nowhere"})
    with pytest.raises(DeviceError) as caught:
        run_virtual(rendered("Stop.", 240))
    assert "\n" not in str(caught.value) and str(caught.value).startswith("pyttsx3: ")


def test_an_engine_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyttsx3_voice, "HUNG_S", 0.001)
    with pytest.raises(DeviceError, match="killed"):
        run_virtual(rendered("Stop.", 240))
