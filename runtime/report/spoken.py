"""What became of the clauses of an answer: which utterances carried each, how much of it was heard, and why not more.

The log names no clause in an utterance: the two are brought together by their words and times. A clause that was cut
for a warning goes on under a new number, which counts as the same clause. Knows no page. Times in seconds on the
recording's time line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from handrail.runtime.answer.query import Line
from handrail.runtime.events import Queued
from handrail.runtime.summary import Answering, Run

S = 1e9  # ns
BESIDE = frozenset({  # fixed lines that go with an answer, or stand in its place
    Line.NOT_YET, Line.TOO_LONG, Line.NOTHING, Line.NO_MODEL, Line.CUT_SHORT, Line.FAILED, Line.CHANGED, Line.JUMPED,
    Line.NO_READER,
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class SpokenClause:
    text: str
    written_s: float
    became: str  # "heard", "withheld: ...", "heard in part, then cut", "not heard: expired", ...
    heard: tuple[tuple[float, float], ...]  # from and to, several when it was resumed

    @property
    def was_heard(self) -> bool:
        return bool(self.heard)


def spoken_clauses(run: Run) -> dict[int, list[SpokenClause]]:
    """Of every query, what it wrote for the ear, in order, then the fixed lines that were queued for it."""
    waiting = [q for q in run.queued.values() if q.kind == "answer"]
    answers = list(run.answers.values())
    found = {}
    for i, a in enumerate(answers):
        # A newer question withdraws what an older one hasn't said.
        until_ns = answers[i + 1].asked.t_ns if i + 1 < len(answers) else run.end_ns + 1
        found[a.asked.query_id] = list(_of_one(run, a, waiting, until_ns))
    return found


def _of_one(run: Run, a: Answering, waiting: list[Queued], until_ns: int) -> Iterator[SpokenClause]:
    for clause in a.clauses:
        said = clause.withheld is None
        chain = list(_utterances(run, waiting, clause.text, clause.t_ns, until_ns)) if said else []
        yield _became(run, clause.text, clause.t_ns, clause.withheld, chain)
    for line in [q for q in waiting if q.text in BESIDE and a.asked.t_ns <= q.t_ns < until_ns]:
        if line in waiting:  # it may have gone on from the one before
            chain = list(_utterances(run, waiting, line.text, line.t_ns, until_ns))
            yield _became(run, line.text, line.t_ns, None, chain)


def _utterances(run: Run, waiting: list[Queued], text: str, t_ns: int, until_ns: int) -> Iterator[int]:
    """Numbers of the utterances that carried a clause; they are taken out of ``waiting``."""
    first = next((q for q in waiting if q.text == text and t_ns <= q.t_ns < until_ns), None)
    while first is not None:
        waiting.remove(first)
        yield first.utterance_id
        cut = run.unsaid.get(first.utterance_id)
        first = None if cut is None else next(
            (q for q in waiting if q.t_ns == cut.t_ns and q.text and text.endswith(q.text)), None
        )


def _became(run: Run, text: str, t_ns: int, withheld: str | None, chain: list[int]) -> SpokenClause:
    heard = tuple(
        (h.start_s, h.end_s)
        for s in run.sounds if s.sound.utterance_id in chain and (h := s.as_heard()) is not None
    )
    unsaid = run.unsaid.get(chain[-1]) if chain else None
    if withheld is not None:
        became = f"withheld: {withheld}"
    elif not chain:
        became = "not heard: given up before its turn"
    elif unsaid is not None:
        became = f"heard in part, then {unsaid.reason}" if heard else f"not heard: {unsaid.reason}"
    else:
        became = "heard" if heard else "not heard: the run ended first"
    return SpokenClause(text, t_ns / S, became, heard)
