"""Recognised text as data: cleaned, cut and put in quotation marks, for a prompt and for the ear.

What stands on a sign was written by anyone. It can't close its own quotation, can't look like a model's special token
or a line of the conversation, can't turn the direction of what follows, and can't grow without bound. What it *says* is
left alone: that an order on a sign is no order is for the prompt and the session to hold. Own words never hold
"safe", "clear", "here" or "there"; only a quotation can.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence

from handrail.runtime import config
from handrail.runtime.scene import wrap_deg
from handrail.runtime.scenetext.groups import Group, grouped
from handrail.runtime.scenetext.places import Place
from handrail.runtime.scenetext.reader import is_scrap
from handrail.runtime.scenetext.sights import Sight
from handrail.runtime.speech.phrases import direction

LONGEST_LINE = 80  # letters of one line in a prompt
MOST_LINES = 8  # in a prompt
LONGEST_SPOKEN = 160  # letters of what is read aloud: about ten seconds
# Confidence from which a line is quoted: on drawn signs wrong words fall from 0.76 a picture (at 0.5) to 0.24 of about
# 20, right ones from 87 to 86 %.
READABLE = 0.9
DOUBTED = 0.3  # confidence from which it is taken for text at all
BLUR_DETOUR_DEG = 10.0  # so much farther from the gaze may text be that can be read, and still be what was meant
BEARING_SD_DEG = 3.0
NOTHING = "I don't see any text."

_MARKUP = re.compile(r"[<>|{}\[\]\\`^~▁Ġ]+|[#*_=]{2,}")
_QUOTES = re.compile("[\"'‘’‚‛“”„‟«»‹›「」『』〝〞〟´]+")
_MARKS = re.compile(r"([̀-ͯ҃-҉᪰-᫿᷀-᷿⃐-⃿︠-︯])[̀-ͯ҃-҉᪰-᫿᷀-᷿⃐-⃿︠-︯]+")
_READING = re.compile(
    r"\b(read|reads|reading|written|writing|text|words?|letters?|lettering|says?|labels?|captions?|subtitles?|titles?|"
    r"signs?|signboards?|signage|posters?|notices?|menus?|ads?|advert\w*|logos?|brands?|flavou?rs?|ingredients|"
    r"instructions|prices?|costs?|spells?|spelled|numbers?|names?|named|called|address|headlines?|receipts?|"
    r"expir\w+|best before|use by|what time is it|how much (is|are|does)|"
    r"(what|which) (shops?|stores?|restaurants?|stop|station|bus|line|train|exit|platform|gate|floor|room|street|"
    r"building|section|channel|app|page|book|magazine))\b", re.IGNORECASE,
)  # fmt: skip


def cleaned(text: str, longest: int = LONGEST_LINE) -> str:
    """One line of plain letters, marks and single spaces, without any quotation mark but "'"; may be empty."""
    text = unicodedata.normalize("NFKC", text[: 4 * longest])  # full-width look-alikes become what they look like
    text = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in text)  # control, bidi, private, newlines
    text = _MARKS.sub(r"\1", _QUOTES.sub("'", _MARKUP.sub(" ", text)))
    text = " ".join(text.split())
    if len(text) <= longest:
        return text
    return text[: longest - 1].rsplit(" ", 1)[0].rstrip(" ,;:-'") + "…"


def for_prompt(places: Sequence[Place], nose_rad: float, wearer: config.Wearer) -> str:
    """"Text seen: 1. "EXIT" at one o'clock 2. "Push to open" ahead", one line; empty when there is nothing.

    ``places``: the most wanted first. ``nose_rad``: the heading of the nose now, as in ``Places.see``.
    """
    parts: list[str] = []
    for place in places:
        text = cleaned(place.text)
        if not text or place.confidence < READABLE or is_scrap(text, place.confidence):
            continue
        where = direction(place.bearing_from(nose_rad), BEARING_SD_DEG, wearer)
        parts.append(f'{len(parts) + 1}. "{text}"{_at(where)}')
        if len(parts) == MOST_LINES:
            break
    return f"Text seen: {' '.join(parts)}" if parts else ""


def read_aloud(
    seen: Sequence[Sight], wearer: config.Wearer, look_deg: tuple[float, float] = (0.0, 0.0), turned_rad: float = 0.0
) -> str:
    """What is spoken on "read that": the sign nearest to where the wearer looked, or why none can be read.

    ``look_deg``: bearing and elevation of the gaze when the picture was taken, else of the nose. ``turned_rad``: by how
    much the nose has turned since, to the left, so that a direction holds when it is spoken.
    """
    groups = grouped([s for s in seen if _is_text(s)])
    if not groups:
        return NOTHING

    def nearness(group: Group) -> float:
        return group.off_deg(look_deg) + (0.0 if _readable(group) else BLUR_DETOUR_DEG)

    nearest = min(groups, key=nearness)
    if not (words := _readable(nearest)):
        where = direction(wrap_deg(nearest.bearing_deg + math.degrees(turned_rad)), BEARING_SD_DEG, wearer)
        return f"Text{_at(where)}, too blurred. Hold still."
    return f'The sign says: "{_ending(_lower(cleaned(words, LONGEST_SPOKEN)))}"'


def asks_to_read(question: str) -> bool:
    """Whether a question in English is about written words, so that reading a picture first is worth a second.

    Words that go with reading, no more: it also says yes to "What's the name of this flower?", which costs that second;
    what it misses is answered without quotations.
    """
    return _READING.search(question[:500]) is not None


def _is_text(s: Sight) -> bool:
    text, confidence = cleaned(s.line.text), s.line.confidence
    return bool(text) and confidence >= DOUBTED and not is_scrap(text, confidence)


def _readable(group: Group) -> str:
    """Its lines that were read well, in reading order; empty when less than half of its letters were."""
    good = [s.line.text for s in group.sights if s.line.confidence >= READABLE]
    return " ".join(good) if 2 * sum(map(len, good)) >= sum(len(s.line.text) for s in group.sights) else ""


def _at(where: str) -> str:
    """" at one o'clock", " ahead", " on the left", or nothing when the direction isn't known."""
    if where in ("", "ahead"):
        return f" {where}".rstrip()
    return f" on the {where}" if where in ("left", "right") else f" at {where}"


def _lower(text: str) -> str:
    """Words in capitals as words: voices spell them out. Up to three letters may be an abbreviation."""
    return re.sub(r"\b[A-Z]{4,}\b", lambda found: found[0].lower(), text)


def _ending(text: str) -> str:
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."
