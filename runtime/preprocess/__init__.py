"""What a bundle's model is given, made with numpy alone: pixels, token ids, positions and masks.

    pixels(frames, plan)              # uint8 [F, H, W, 3] -> what the vision graph takes
    positions(...), mask(...)         # what the decoder graph takes beside embeddings
    prompt.Prompter(...).ids(...)     # chat template, frame and sensor placeholders expanded, tokenised

The training side uses the same functions, so that nothing can differ. Equal to the processors of transformers (tested).
"""

from handrail.runtime.preprocess.images import ImagePlan, pixels
from handrail.runtime.preprocess.positions import Positions, mask, positions

__all__ = ["ImagePlan", "Positions", "mask", "pixels", "positions"]
