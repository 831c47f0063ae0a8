"""Text as a voice reads it rightly: units and symbols spelt out in British English, pictures and addresses left out.

"2 m" is two metres and "2 m/s" a speed; a plain distance in metres is told in the wearer's units (a width or a height
stays in metres, and so does what is quoted). Times, clock directions and currencies stay as they are: voices know them.
Knows no other language's units.
"""

from __future__ import annotations

import re
import unicodedata

from handrail.runtime import config
from handrail.runtime.speech.phrases import distance

_NUMBER = r"\d+(?:[.,]\d+)*"
_BEFORE = r"(?<![\w.,£$€])"  # a number begins; "£5 m" is money
_RANGE = rf"{_BEFORE}({_NUMBER})(?:(?:\s?[-–]\s?| to )({_NUMBER}))?"

_UNITS = {  # as written: one, many
    "m/s": ("metre per second", "metres per second"), "km/h": ("kilometre per hour", "kilometres per hour"),
    "mph": ("mile per hour", "miles per hour"), "m²": ("square metre", "square metres"),
    "mm": ("millimetre", "millimetres"), "cm": ("centimetre", "centimetres"), "km": ("kilometre", "kilometres"),
    "m": ("metre", "metres"), "ft": ("foot", "feet"), "kg": ("kilogram", "kilograms"), "°C": ("degree Celsius",
    "degrees Celsius"), "°F": ("degree Fahrenheit", "degrees Fahrenheit"), "°": ("degree", "degrees"),
    "%": ("per cent", "per cent"), "min": ("minute", "minutes"), "ms": ("millisecond", "milliseconds"),
}  # fmt: skip
_UNIT = re.compile(rf"{_RANGE}[\s-]?({'|'.join(map(re.escape, sorted(_UNITS, key=len)[::-1]))})(?![\w/²³°])")

_WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()
_AMOUNT = rf"(?:{_NUMBER}|{'|'.join(_WORDS[1:])})"
_NO_DISTANCE = r"(?! (?:per|wide|high|tall|long|deep|thick|broad|square|above|below|in (?:width|height|length))\b)"
_METRES = re.compile(
    rf"(?<![\w.,£$€-])(?:({_AMOUNT})(?:(?: to |\s?[-–]\s?)({_AMOUNT}))?(?: and)?( a half)?|(half a)|(an?))"
    rf" metres?\b{_NO_DISTANCE}",
    re.IGNORECASE,
)
_QUOTATION = re.compile("(\"[^\"]*\"|“[^“”]*”|«[^«»]*»)")
_ADDRESS = re.compile(r"(?:https?://|\bwww\.)[^\s\"“”<>()]*[^\s\"“”<>().,;:!?]", re.IGNORECASE)
_EMAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")

_SPELT = [  # in order
    (_ADDRESS, "a web address"), (_EMAIL, "an e-mail address"),
    (re.compile(r"\bmeter(s?)\b(?=[^-]|$)"), r"metre\1"),
    (re.compile(rf"[~≈]\s?(?={_NUMBER})"), "about "),
    (re.compile(rf"(?<![\w.])[-−](?={_NUMBER}\s?°)"), "minus "),
    (re.compile(rf"#\s?(?={_NUMBER})"), "number "),
    (re.compile(r"(?<=[\d\w])\s?×\s?(?=\d)"), " by "),
    (re.compile(r"\s?&\s?"), " and "), (re.compile(r"(?<=\w)\s\+\s(?=\w)"), " plus "),
    (re.compile(r"(?<=\w)\s?=\s?(?=\w)"), " equals "), (re.compile(r"\s?[→⇒]\s?"), ", "),
    (re.compile(r"(?<=[^\W\d])/(?=[^\W\d]{2})"), " or "),
]  # fmt: skip
_LONE_JOINER = re.compile("(^|\\s)[\u200c\u200d]+")  # what a picture has left
_DROPPED = ("So", "Sk", "Sm", "Co", "Cs", "Cn", "Cc", "Cf")  # categories: pictures, signs, what isn't seen
_DROPPED_TOO = "_|\\^~<>{}#*`\u20e3"


def speakable(text: str, wearer: config.Wearer) -> str:
    """One line, white space normalised. Text that is plain already stays as it is."""
    for pattern, words in _SPELT:
        text = pattern.sub(words, text)
    text = _UNIT.sub(_spelt, text)
    if wearer.units == "steps":
        parts = _QUOTATION.split(text)
        parts[::2] = [_METRES.sub(lambda m: _in_steps(m, wearer), part) for part in parts[::2]]
        text = "".join(parts)
    text = _LONE_JOINER.sub(r"\1", "".join(map(_said, text)))
    return re.sub(r"\s+([,.;:!?])(?=\s|$)", r"\1", " ".join(text.split())).lstrip(",;:!?. ")


def _spelt(m: re.Match[str]) -> str:
    low, high, unit = m.groups()
    one, many = _UNITS[unit]
    name = one if high is None and low == "1" else many
    return f"{low} {name}" if high is None else f"{low} to {high} {name}"


def _in_steps(m: re.Match[str], wearer: config.Wearer) -> str:
    low, high, and_half, half, _ = m.groups()
    if low is None:
        return distance(0.5 if half else 1.0, 0.0, wearer)
    near, far = _value(low), _value(high or low) + (0.5 if and_half else 0.0)
    words = distance(far, 0.0, wearer)
    if high is None:
        return words
    begin = distance(near, 0.0, wearer)
    return words if begin == words else f"{begin.split()[0]} to {words}"


def _value(number: str) -> float:
    if number.lower() in _WORDS:
        return float(_WORDS.index(number.lower()))
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", number):
        return float(number.replace(",", ""))
    whole, _, rest = number.replace(",", ".").partition(".")
    return float(f"{whole}.{rest.replace('.', '')}")


def _said(c: str) -> str:
    """A character as it goes to the voice. The joiners of Persian and Indian scripts are part of their words."""
    if c.isspace():
        return " "
    if c in _DROPPED_TOO or "\ufe00" <= c <= "\ufe0f":
        return " "
    if unicodedata.category(c) in _DROPPED and c not in "\u200c\u200d+=°":
        return "" if unicodedata.category(c) == "Cf" else " "
    return c
