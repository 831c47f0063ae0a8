"""What the wearer typed or, later, said: a command, or else a question. Fixed phrases in English, whole lines only.

"Stop" is a command, "Where does the bus stop?" is a question. Knows nothing of what a command does.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

LONGEST_COMMAND = 500  # characters of a fixed phrase: looking for one takes the square of the line's length
LONGEST = 20_000  # characters of a line; the rest is left out: it doesn't fit a model anyway, which is said


@dataclass(frozen=True, slots=True)
class Nothing:
    """An empty line."""


@dataclass(frozen=True, slots=True)
class Hush:
    """Be quiet at once."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """What was said last, again."""


@dataclass(frozen=True, slots=True)
class Detail:
    more: bool  # one level up or down


@dataclass(frozen=True, slots=True)
class Describe:
    """What is around, without a question."""


@dataclass(frozen=True, slots=True)
class Read:
    """The text in view, as a quotation."""


@dataclass(frozen=True, slots=True)
class Aim:
    """A new goal; an earlier one is replaced."""

    text: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The goal."""


@dataclass(frozen=True, slots=True)
class Question:
    text: str


Command = Nothing | Hush | Repeat | Detail | Describe | Read | Aim | GiveUp | Question

_FIXED: dict[Command, str] = {  # whole lines, without "please" and punctuation
    Hush(): r"stop(?: it| talking| speaking)?|hush|shush|(?:be )?(?:quiet|silent)|silence|shut up|enough",
    Repeat(): r"repeat(?: that| it| last)?|(?:say )?(?:that |it )?again|say (?:that|it) again|pardon|what did you say",
    Detail(True): r"more(?: details?)?|(?:say|tell me) more",
    Detail(False): r"less(?: details?)?|(?:say|tell me) less|shorter",
    Describe(): (
        r"describe(?: (?:it|this|that|the scene|the room))?|look (?:a)?round"
        r"|what(?:'s| is) (?:around|round)(?: (?:me|us))?|where am i"
    ),
    Read(): (
        r"read(?: (?:that|this|it|the (?:sign|text|label|screen)))?(?: to me| aloud| out)?"
        r"|what does (?:that|this|it|the (?:sign|text|label|screen)) say|what(?:'s| is) written(?: on it)?"
    ),
    GiveUp(): (
        r"give up|cancel|(?:cancel|drop|forget|stop|end)(?: the| my| this)? goal|stop (?:looking|searching|guiding)"
        r"|never mind|forget it"
    ),
}
_AIMS = re.compile(
    r"goal\s*[:=]\s*(?P<goal>.*)"
    r"|(?:help me |i (?:want|need|would like) to |i'd like to )(?P<doing>(?:find|get to|go to|reach)\b(?! out\b).+)"
    r"|(?:take|guide|lead|bring|walk) me (?P<to>to .+)"
    r"|(?:i'm|i am) looking for (?P<thing>.+)",
    re.IGNORECASE,
)


def parse(line: str) -> Command:
    """Of one line; anything that is no command is a question, as it stands."""
    text = plain(line)[:LONGEST].strip()
    bare = text.casefold().replace("’", "'").rstrip(" .!?") if len(text) <= LONGEST_COMMAND else ""
    bare = re.sub(r"^(?:please[ ,]+)|[ ,]*\bplease$", "", bare)
    if not re.search(r"\w", text):
        return Nothing()
    for command, phrases in _FIXED.items():
        if re.fullmatch(phrases, bare):
            return command
    aim = _AIMS.fullmatch(re.sub(r"^please[ ,]+", "", text.replace("’", "'"), flags=re.IGNORECASE))
    if aim is None:
        return Question(text)
    wanted = {k: v.rstrip(" .!?") for k, v in aim.groupdict().items() if v is not None}
    match next(iter(wanted.items())):
        case (_, ""):
            return Nothing()
        case ("to", place):
            return Aim(f"get {place}")
        case ("thing", thing):
            return Aim(f"find {thing}")
        case (_, goal):
            return Aim(goal)


def plain(text: str) -> str:
    """One line without characters that control or aren't seen; white space normalised."""
    seen = (" " if unicodedata.category(c) in ("Cc", "Cs") else c for c in text if not _unseen(c))
    return " ".join("".join(seen).split())


def _unseen(c: str) -> bool:
    """The joiners of Persian and Indian scripts are part of their words."""
    return unicodedata.category(c) == "Cf" and c not in "\u200c\u200d"
