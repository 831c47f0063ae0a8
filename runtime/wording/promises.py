"""Clauses that promise safety: found here, and never said. A stop-gap of word lists in front of a real safety filter.

Covered, in English: the words "safe" and "clear" (whatever they mean: they are never spoken); that there is nothing or
no obstacle, danger or traffic in the way; that a way is free, open or empty; that the wearer can go or cross, or that
it is all right to. Warnings stay: "unsafe", "you can't cross", "do not cross".
A sign may be quoted with any of these words, if the clause says that it quotes: The sign says: "Keep clear."

Not covered: other languages and other wordings; an order that promises by itself ("Walk on."); a promise spread over
two clauses; a false reading of a sign; what is wrong in any other way. Silence about an obstacle is no promise.
"""

from __future__ import annotations

import re
import unicodedata

_WAY = (
    r"(?:path|way|road|street|route|lane|corridor|hall(?:way)?|passage(?:way)?|walkway|aisle|pavement|sidewalk"
    r"|crossing|crosswalk|junction|floor|ground|area|space|stairs?|doorway|everything)"
)
_HARM = (
    r"(?:obstacles?|obstructions?|hazards?|dangers?|risks?|barriers?|traffic|cars?|vehicles?|threats?|trip(?:ping)?"
    r" hazards?|steps?|stairs|drop-?offs?|problems?|issues?|worr(?:y|ies))"
)
_NOTHING = r"(?:nothing|nobody|no one|(?:isn't|not) anything)"
_THERE = (
    r"(?:in (?:the|your) (?:way|path)|in front|ahead|before you|around|coming|near(?:by)?|to (?:worry|fear|avoid))"
)
_NOT = r"(?<!not )(?<!n't )(?<!never )(?<!cannot )"
_GO = (
    r"(?:go|cross|walk|proceed|pass|continue|move|step|enter|advance|carry on|keep|head|make your way|get (?:through"
    r"|past|by|across))"
)

# In order; the first that fits names the reason.
_PROMISES = [
    ("says safe", re.compile(
        r"\bsafe(?:ly|r|st)?\b"
        r"|\bsafety\b(?! (?:barrier|rail|railing|gate|fence|cone|tape|net|vest|sign|notice|door))")),
    ("says clear", re.compile(r"\bclear(?:ly|ed|er|est|s|ing)?\b")),
    ("says that nothing is in the way", re.compile(
        rf"\b{_NOTHING}\b(?: \w+){{0,3}}? {_THERE}\b|\bno (?:\w+ ){{0,2}}?{_HARM}\b|\b{_HARM}[- ]free\b"
        r"|\b(?:free (?:of|from)|without|(?:don't|can't|cannot|not) see|see no|isn't|aren't)"
        rf"(?: any)?(?: \w+)?? {_HARM}\b"
        rf"|\bnot? any {_HARM}\b")),
    ("says that the way is free", re.compile(
        rf"\b{_WAY}\b(?: \w+){{0,3}}? (?:is|are|looks?|seems?|appears?|'s)(?: to be)?(?: \w+)?? {_NOT}"
        r"(?:free|open|empty|unobstructed|unblocked|passable|walkable)\b(?! plan| to the public)"
        r"|\bit(?:'s| is| looks?| seems)(?: \w+)?? (?<!not )(?:free|empty|passable|walkable)\b"
        rf"|\b{_WAY}'s (?:\w+ )??(?:free|open|empty|passable)\b|\b(?:free|open|empty) (?:path|way|road|route|passage)\b"
        r"|\bunobstructed\b|\bcoast is\b|\bway is yours\b")),
    ("says that the wearer can go", re.compile(
        rf"\byou (?:can|could|may|should be able to|are able to|are free to|might)(?! not\b)(?: \w+)?? {_NOT}{_GO}\b"
        rf"|\byou(?:'re| are) (?:good|okay|ok|fine|all right|alright|free) to\b|\bfree to {_GO}\b"
        rf"|\b(?:okay|ok|fine|all right|alright|possible|time) to {_GO}\b|\bgood to go\b|\bgo ahead\b|\ball good\b"
        rf"|\bfeel free\b|{_NOT}\bcross (?:now|the (?:road|street))\b|\bno need to (?:worry|wait|stop)\b"
        r"|\byou (?:won't|will not) (?:hit|bump|trip|fall)\b"
        r"|\b(?:don't|do not) (?:worry|need to (?:worry|wait|stop))\b|\bright of way\b")),
]  # fmt: skip

_QUOTED = re.compile("\"[^\"]*\"|“[^“”]*”|«[^«»]*»|「[^「」]*」|„[^„“”]*[“”]")
_QUOTES = re.compile(
    r"\b(?:says?|reads?|reading|saying|signs?|text|label(?:led)?|written|notice|screen|titled?|called|named|words?)\b"
)


def promise(clause: str) -> str | None:
    """Why a clause must not be said; None where nothing is found against it."""
    text = _plain(clause)
    while (quoted := _QUOTED.search(text)) and _QUOTES.search(text[: quoted.start()]):
        text = text[: quoted.start()] + " . " + text[quoted.end() :]
    text = " ".join(text.split())
    return next((reason for reason, pattern in _PROMISES if pattern.search(text)), None)


def _plain(clause: str) -> str:
    """Lower case, without marks and invisible characters between letters; one kind of apostrophe."""
    text = unicodedata.normalize("NFKC", clause).casefold().replace("’", "'")
    text = "".join(c for c in text if unicodedata.category(c) not in ("Cf", "Cc", "Mn") or c.isspace())
    return re.sub(r"[*_`]", "", text)
