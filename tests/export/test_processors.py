"""Our pixels, prompts and positions against the processors of transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the export room needs torch")
pytest.importorskip("transformers", reason="the export room needs transformers")

from handrail.export.backbones import tiny  # noqa: E402
from handrail.export.backbones.families import FAMILIES  # noqa: E402
from handrail.runtime.preprocess import ImagePlan, pixels, positions  # noqa: E402


def frame(height: int = 1408, width: int = 1408, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


def processor(family: str, plan: ImagePlan) -> Any:
    """The published one of the family, set to the plan's size."""
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
    from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

    size = {"height": plan.height, "width": plan.width}
    norm = {"image_mean": list(plan.mean), "image_std": list(plan.std)}
    if family == "qwen3-vl":
        area = plan.height * plan.width
        return Qwen2VLImageProcessorPil(
            patch_size=plan.patch, size={"shortest_edge": area, "longest_edge": area}, **norm
        )
    if family == "internvl3":
        return GotOcr2ImageProcessorPil(size=size, crop_to_patches=False, **norm)
    if family == "gemma3":
        return Gemma3ImageProcessorPil(size=size, **norm)
    longest = {"longest_edge": plan.height}
    return SmolVLMImageProcessorPil(size=longest, max_image_size=longest, do_image_splitting=False, **norm)


@pytest.mark.parametrize("family", FAMILIES)
def test_pixels_equal_those_of_the_published_processor(family: str) -> None:
    plan = tiny.build(family).side.image
    theirs = processor(family, plan)(images=[frame()], return_tensors="np")["pixel_values"]
    ours = pixels(frame()[None], plan)
    assert np.array_equal(np.asarray(theirs, np.float32).reshape(ours.shape), ours)


def test_positions_in_three_axes_equal_those_of_the_model() -> None:
    backbone = tiny.build("qwen3-vl")
    ids = np.array(backbone.prompt("What is ahead?", 3, 8))
    kinds = torch.tensor((ids == backbone.image_id).astype(np.int32))[None]
    down, across = backbone.side.image.grid
    theirs, delta = backbone.model.model.get_rope_index(
        torch.tensor(ids)[None], kinds, image_grid_thw=torch.tensor([[1, down, across]] * 3)
    )
    ours = positions(ids, backbone.image_id, backbone.frame_grid)
    assert np.array_equal(ours.axes, theirs[:, 0].numpy())
    assert ours.next == len(ids) + int(delta)
