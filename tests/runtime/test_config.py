"""Settings: defaults, and one clear line for whatever is wrong with the file."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handrail.runtime.config import Config, load_config
from handrail.streams.errors import ConfigError

VALID = b"[wearer]\nspeech_rate_wpm = 300\nunits = 'steps'\nstep_length_m = 1\n[audio]\nvoice = 'pyttsx3'\n"


def test_no_file_means_defaults_and_a_file_changes_what_it_names(tmp_path: Path) -> None:
    assert load_config(None) == Config()
    file = tmp_path / "h.toml"
    file.write_bytes(VALID)
    config = load_config(file)
    assert (config.wearer.speech_rate_wpm, config.wearer.units, config.audio.voice) == (300, "steps", "pyttsx3")
    assert config.wearer.directions == Config().wearer.directions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[wearer]\nspeech_rate = 300", "unknown key wearer.speech_rate; did you mean speech_rate_wpm (a whole number from 80 to 450)?"),  # noqa: E501
        ("[wearer]\nqqq = 300", "unknown key wearer.qqq; expected one of speech_rate_wpm, units"),
        ("[weaver]\nmono = true", "unknown key weaver; did you mean wearer (a table"),
        ("[wearer]\nspeech_rate_wpm = 79", "wearer.speech_rate_wpm: expected a whole number from 80 to 450, got 79"),
        ("[wearer]\nspeech_rate_wpm = 451", "wearer.speech_rate_wpm: expected a whole number from 80 to 450, got 451"),
        ("[wearer]\nspeech_rate_wpm = 300.5", "expected a whole number from 80 to 450, got 300.5"),
        ("[wearer]\nspeech_rate_wpm = '300'", 'expected a whole number from 80 to 450, got "300"'),
        ("[wearer]\nspeech_rate_wpm = true", "expected a whole number from 80 to 450, got true"),
        ("[wearer]\nstep_length_m = 1.3", "wearer.step_length_m: expected a number from 0.3 to 1.2, got 1.3"),
        ("[wearer]\nstep_length_m = nan", "wearer.step_length_m: expected a number from 0.3 to 1.2, got nan"),
        ("[wearer]\nstep_length_m = -inf", "wearer.step_length_m: expected a number from 0.3 to 1.2, got -inf"),
        ("[wearer]\nunits = 'feet'", 'wearer.units: expected one of "metres", "steps", got "feet"'),
        ("[wearer]\nmono = 'yes'", 'wearer.mono: expected true or false, got "yes"'),
        ("wearer = 3", "wearer: expected a table with the keys speech_rate_wpm"),
        ("[[wearer]]\nmono = true", "wearer: expected a table with the keys speech_rate_wpm"),
        ("[wearer", "not a TOML file"),
        ("a = " + "[" * 20_000, "not a TOML file"),
        ("a = " + "9" * 20_000, "not a TOML file"),
        ("\ufeff[wearer]", "not a TOML file"),
        ("#" * (1 << 21), "at most 1048576 bytes"),
    ],
)
def test_a_mistake_is_named_by_file_key_and_what_was_expected(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "h.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert str(caught.value).startswith(f"{file}: ") and expected in str(caught.value)


@pytest.mark.parametrize("name", ["missing.toml", ".", "no\0name"])
def test_a_file_that_cant_be_read_is_a_config_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        load_config(tmp_path / name)


SCALARS = st.one_of(
    st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
    st.sampled_from(["metres", "steps", "clock", "espeak", 240, 0.7, 10.0]),
)
KEYS = st.one_of(
    st.sampled_from(["wearer", "audio", "speech_rate_wpm", "units", "step_length_m", "directions", "mono", "voice",
                     "period_ms"]),
    st.text(max_size=6),
)


def toml(table: dict[str, object]) -> str:
    """TOML inline tables, keys quoted."""

    def quoted(text: str) -> str:
        return '"' + "".join(c if c.isalnum() and c.isascii() else f"\\U{ord(c):08x}" for c in text) + '"'

    def value(v: object) -> str:
        match v:
            case bool():
                return str(v).lower()
            case str():
                return quoted(v)
            case dict():
                return "{" + ", ".join(f"{quoted(k)} = {value(x)}" for k, x in v.items()) + "}"
            case list():
                return "[" + ", ".join(map(value, v)) + "]"
            case _:
                return repr(v)

    return "\n".join(f"{quoted(k)} = {value(v)}" for k, v in table.items())


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.dictionaries(
        KEYS,
        st.recursive(SCALARS, lambda v: st.one_of(st.lists(v, max_size=2), st.dictionaries(KEYS, v, max_size=3)),
                     max_leaves=6),
        max_size=3,
    )
)
def test_any_toml_gives_settings_or_a_config_error(tmp_path: Path, table: dict[str, object]) -> None:
    file = tmp_path / "h.toml"
    try:
        text = toml(table).encode()
    except UnicodeEncodeError:  # lone surrogates
        return
    file.write_bytes(text)
    loads_or_explains(file)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(0, len(VALID)), st.integers(0, 8), st.binary(max_size=6))
def test_any_damage_to_a_file_gives_settings_or_a_config_error(
    tmp_path: Path, at: int, cut: int, junk: bytes
) -> None:
    file = tmp_path / "h.toml"
    file.write_bytes(VALID[:at] + junk + VALID[at + cut :])
    loads_or_explains(file)


def loads_or_explains(file: Path) -> None:
    try:
        config = load_config(file)
    except ConfigError as e:
        assert str(e).startswith(f"{file}: ")
    else:
        assert 80 <= config.wearer.speech_rate_wpm <= 450 and 0.3 <= config.wearer.step_length_m <= 1.2
