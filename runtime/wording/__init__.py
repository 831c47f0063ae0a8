"""Text as it streams out of a model: whole characters, then clauses, then words that a voice reads rightly.

    Detokeniser    token ids -> text, never half a character
    ClauseSplitter text -> clauses, each as soon as it is certain
    promise        why a clause must not be said
    speakable      units, numbers and symbols spelt out
    Repetition     whether a model goes round in circles

Knows no model, no tokenizer but by its ``decode``, and no speech queue.
"""

from handrail.runtime.wording.clauses import ClauseSplitter
from handrail.runtime.wording.detokenise import Detokeniser
from handrail.runtime.wording.promises import promise
from handrail.runtime.wording.repetition import Repetition
from handrail.runtime.wording.speakable import speakable

__all__ = ["ClauseSplitter", "Detokeniser", "Repetition", "promise", "speakable"]
