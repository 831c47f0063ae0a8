"""What is said without being asked: a goal's next step, a change of scene. When each is due is decided in ``asking``;
this keeps its state in step with what was asked, written and heard. Makes no prompts' words and asks nothing itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from handrail.runtime import config
from handrail.runtime.answer.query import Kind, Query
from handrail.runtime.asking import changes, goals, prompts
from handrail.runtime.events import AnyEvent, GoalChanged
from handrail.runtime.scene import Scene
from handrail.streams.clock import now_ns

AIMED = (Kind.GOAL, Kind.STEP)


class Unasked:
    def __init__(self, emit: Callable[[AnyEvent], None], start_ns: int) -> None:
        self._emit, self._start_ns = emit, start_ns
        self._ids = itertools.count(1)
        self._goal: goals.Goal | None = None
        self._step = ""  # the last that was told
        self._why = goals.Due.FIRST
        self._memory = changes.Memory()
        self._open: Query | None = None  # begun, and its last word hasn't been heard
        self._said = False

    # Goals

    def pursue(self, text: str) -> None:
        """From now on; an earlier goal is replaced."""
        self._end_goal(goals.GoalState.REPLACED)
        self._goal, self._step, self._why = goals.begun(next(self._ids), text), "", goals.Due.FIRST
        self._tell(self._goal, goals.GoalState.ACTIVE)

    def give_up(self) -> bool:
        """Whether there was one."""
        return self._end_goal(goals.GoalState.GIVEN_UP)

    def seam(self) -> None:
        """Time or place jumped."""
        self._memory = changes.Memory()
        self._open = None
        if self._goal is not None:
            self._goal = goals.after_seam(self._goal)

    # What is due

    def due(self, scene: Scene, wearer: config.Wearer, speaking: bool) -> tuple[Kind, str] | None:
        """For every look. ``speaking``: an answer is being worked out or said."""
        now = now_ns()
        if not speaking:
            self._close(now)
        if self._goal is not None:
            why = goals.due(self._goal, scene, now, speaking)
            self._why = why or self._why
            return None if why is None else (Kind.STEP, self._goal.text)
        decision, self._memory = changes.decide(self._memory, scene, now, wearer.detail, speaking)
        return (Kind.CHANGE, decision.reason) if isinstance(decision, changes.Tell) else None

    # Around an answer

    def begun(self, query: Query, scene: Scene | None) -> None:
        self._close(now_ns())
        self._open, self._said = query, False
        if query.kind in AIMED and self._goal is not None:
            self._goal = goals.asked(self._goal, self._why, scene)
        elif scene is not None:
            self._memory = changes.asked(self._memory, scene)

    def prompt(self, query: Query, facts: str, texts: Sequence[str]) -> str:
        """The part of the prompt that varies."""
        match query.kind:
            case Kind.SCENE:
                return prompts.scene(facts, texts)
            case Kind.GOAL:
                return prompts.goal(query.text, facts, texts)
            case Kind.STEP:
                return prompts.next_step(query.text, self._step, facts, texts)
            case Kind.CHANGE:
                return prompts.change(query.text, facts, texts)
            case _:
                return prompts.question(query.text, facts, texts)

    def answered(self, query: Query, text: str) -> None:
        """Written to its end: also nothing at all, which is an answer of the model."""
        self._said = True
        if query.kind not in AIMED or self._goal is None:
            return
        self._step = text
        if goals.reached(text):
            self._end_goal(goals.GoalState.REACHED)

    def unheard(self) -> None:
        """The wearer turned before the end of it: a step is due again."""
        self._said = False

    def hushed(self) -> None:
        """What was being said has been heard enough of."""
        self._said = True

    # Steps

    def _close(self, now: int) -> None:
        """Nothing is being said any more: what was begun has ended."""
        query, self._open = self._open, None
        if query is None:
            return
        if query.kind not in AIMED:
            self._memory = changes.ended(self._memory, now, self._said)
        elif self._goal is not None:
            self._goal = goals.ended(self._goal, now, self._said)

    def _end_goal(self, state: goals.GoalState) -> bool:
        goal, self._goal = self._goal, None
        if goal is not None:
            self._tell(goal, state)
        return goal is not None

    def _tell(self, goal: goals.Goal, state: goals.GoalState) -> None:
        self._emit(GoalChanged(now_ns() - self._start_ns, goal.id, state.value, goal.text))
