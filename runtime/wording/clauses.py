"""Clauses out of text that is still being written: each leaves as soon as it is certain, cleaned of markdown.

When is an end certain?
  at once             a line's end; ! ? 。 ！ ？ । ؟ and the like; the full stop of at most three plain words ("Stop.",
                      "Step down."), if the last is no abbreviation
  one character on    any other full stop: "98.6" and "example.com" go on, "2 m. " doesn't
  one word begun      after "No." (a digit: "No. 5"), "a.m." and "etc." (a small letter goes on), a quotation that ends
                      with its own full stop
  never               "Dr.", "e.g.", an initial, the number of a list item; inside of a quotation, which stays whole
Waiting for one token costs a token's time (some 25 ms), cutting in the wrong place a spoken mistake. Only the short
clause is worth the risk: it is the one that must be heard now, and a web address that begins a clause is rare.

What has no end by 160 characters is cut, at a comma, else between words. What comes out depends on the text alone, not
on the pieces it came in. Letters and digits are all there, once and in order.
"""

from __future__ import annotations

import re
from collections.abc import Callable

LONGEST = 160  # characters of a clause
_AHEAD = 16  # characters looked at beyond it: what is undecided then is an end
_SHORT_WORDS = 3

_ENDS = "!?…。！？｡।॥؟۔።།။"
_OPEN = {'"': '"', "“": "”", "«": "»", "「": "」", "『": "』", "„": "“”"}
_CLOSERS = "'’\")]”»」』）"
_NEVER = {
    "dr", "mr", "mrs", "ms", "mx", "prof", "rev", "sgt", "capt", "gen", "st", "mt", "vs", "cf", "eg", "ie", "e.g",
    "i.e", "approx", "ca", "dept", "www", "tel", "ext", "est",
}  # fmt: skip
_UNLESS_DIGIT = {
    "no", "nos", "nr", "p", "pp", "fig", "vol", "ch", "sec", "apt", "rm", "jan", "feb", "mar", "apr", "jun", "jul",
    "aug", "sep", "sept", "oct", "nov", "dec",
}  # fmt: skip
_UNLESS_SMALL = {"a.m", "p.m", "etc", "jr", "sr", "inc", "ltd", "co", "ave", "rd", "blvd", "max", "min", "u.s", "u.k"}
_ABBREVIATED = _NEVER | _UNLESS_DIGIT | _UNLESS_SMALL
_BEFORE_QUOTATION = " ([{:—–-"  # else a " is the end of one, or inches
_NO, _OPEN_YET = -1, -2  # what a mark can be beside an end, which is where the next clause begins
_LINE_MARKS = re.compile(r"\s*(?:(?:[#>•·+–—]+|-+)(?=\s|[#>•·+–—-]|$)\s*)*")
_COMMAS = re.compile(r",(?=\s)|[，、،]")


class ClauseSplitter:
    def __init__(self) -> None:
        self._stars = ""  # not known yet to be markdown: "3*4"
        self._last = ""  # character taken in
        self._text = ""  # taken in and not given out
        self._trailing = False  # more marks of an end that is out already don't count

    def add(self, text: str) -> list[str]:
        """Clauses that are now certain."""
        text = self._stars + text
        bare = text.rstrip("*")
        self._stars = text[len(bare) :]
        return self._taken(bare, ended=False)

    def end(self) -> list[str]:
        """What is left, as clauses. The next text begins anew."""
        clauses = self._taken("", ended=True)
        self._stars = self._last = self._text = ""
        self._trailing = False
        return clauses

    def _taken(self, text: str, ended: bool) -> list[str]:
        known = len(self._last)
        bare = re.sub(r"(?<=\d)\*(?=\d)", "×", self._last + text)[known:].replace("*", "").replace("`", "")
        bare = re.sub(r"\r\n?|[\v\f\x85\u2028\u2029]", "\n", bare)
        bare = re.sub(r"[^\S\n]", " ", bare)
        self._last = (self._last + text)[-1:]
        self._text += bare
        clauses = []
        while True:
            self._skip()
            window = self._text[: LONGEST + _AHEAD]
            cut = _end(window, final=ended or len(self._text) >= LONGEST + _AHEAD)
            if cut is None:
                break
            clause, self._text = self._text[:cut], self._text[cut:]
            self._trailing = clause[-1] in _ENDS + "." + _CLOSERS
            clause = _clean(clause)
            if re.search(r"\w", clause):
                clauses.append(clause)
        return clauses

    def _skip(self) -> None:
        """White space in front, and what hangs on the end before: "?!" and a bracket."""
        if self._trailing:
            rest = self._text.lstrip(_ENDS + "." + _CLOSERS)
            self._trailing = not rest
            self._text = rest
        self._text = re.sub(r" {2,}", " ", self._text.lstrip())


def _end(text: str, final: bool) -> int | None:
    """Where the first clause ends; None when that is still open. ``final``: nothing more will be known."""
    closing = ""  # what ends the quotation that has begun
    for i, c in enumerate(text[:LONGEST]):
        if c == "\n":
            return i + 1
        verdict = _NO
        if closing:
            if c in closing:
                closing = ""
                verdict = _after_quotation(text, i, final)
        elif c in _OPEN and (c != '"' or i == 0 or text[i - 1] in _BEFORE_QUOTATION):
            closing = _OPEN[c]
        elif c in _ENDS:
            return i + 1
        elif c == ";":
            verdict = _semicolon(text, i, final)
        elif c == ".":
            verdict = _full_stop(text, i, final)
        if verdict != _NO:
            return None if verdict == _OPEN_YET else verdict
    if len(text) > LONGEST:
        return _forced(text)
    return len(text) if final and text else None


def _semicolon(text: str, i: int, final: bool) -> int:
    if i + 1 == len(text):
        return i + 1 if final else _OPEN_YET
    return i + 1 if text[i + 1].isspace() else _NO


def _after_quotation(text: str, i: int, final: bool) -> int:
    """A quotation that ends with an end ends the clause, unless the sentence goes on behind it."""
    if text[i - 1] not in _ENDS + ".":
        return _NO
    return _unless(text, i + 1, final, lambda n: n.islower() or n in ",;:.–—-")


def _full_stop(text: str, i: int, final: bool) -> int:
    head = text[_LINE_MARKS.match(text).end() : i]  # type: ignore[union-attr]
    word = re.search(r"[\w.'’-]*$", head)[0].lower()  # type: ignore[index]
    if _short(head, word):
        return i + 1
    j = i + 1
    while j < len(text) and text[j] in "." + _CLOSERS:
        j += 1
    if j == len(text):
        return j if final else _OPEN_YET
    if not text[j].isspace():
        return _NO
    if j > i + 1:  # "..." or a bracket: no abbreviation
        return j
    if word in _UNLESS_DIGIT:
        return _unless(text, j, final, str.isdecimal)
    if word in _UNLESS_SMALL:
        return _unless(text, j, final, str.islower)
    if word in _NEVER or re.fullmatch(r"\s*(?:\d{1,3}|\w)", head):
        return _NO
    initial = re.search(r"(?:^|\s)(?:[^\W\d_]\.)*[^\W\d_]$", head) and not re.search(r"\d\s?\w$", head)  # but "2 m"
    return _NO if initial else j


def _short(head: str, word: str) -> bool:
    """Few plain words, of which the last is neither short nor an abbreviation: their full stop can be nothing else."""
    words = head.split()
    plain = all(re.fullmatch(r"[^\W\d_][^\W\d_'’-]*(?:['’-][^\W\d_]+)?,?", w) for w in words)
    return 0 < len(words) <= _SHORT_WORDS and plain and len(word) > 2 and word not in _ABBREVIATED


def _unless(text: str, j: int, final: bool, goes_on: Callable[[str], bool]) -> int:
    """An end at ``j`` unless what comes next, after white space, makes the sentence go on."""
    rest = text[j:].lstrip(" ")
    if not rest:
        return j if final else _OPEN_YET
    return _NO if goes_on(rest[0]) else j


def _forced(text: str) -> int:
    """Where to cut what has no end: after the last comma that is not too early, else between words, not "2" and "m"."""
    commas = [m.end() for m in _COMMAS.finditer(text[: LONGEST + 1]) if LONGEST // 3 <= m.end() <= LONGEST]
    if commas:
        return commas[-1]
    gaps = [m.start() for m in re.finditer(r"\s", text[: LONGEST + 1]) if m.start()]
    whole = [g for g in gaps if not text[g - 1].isdecimal() and g > LONGEST // 3]
    return (whole or gaps or [LONGEST])[-1]


def _clean(clause: str) -> str:
    return " ".join(_LINE_MARKS.sub("", clause, count=1).split())
