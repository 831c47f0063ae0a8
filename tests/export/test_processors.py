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
from handrail.runtime.preprocess.prompt import SENSOR  # noqa: E402


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


# What the published tokenizer of each family calls its tokens.
NAMES = {
    "qwen3-vl": {},
    "internvl3": {"start_image": "<img>", "end_image": "</img>", "context_image": "<IMG_CONTEXT>", "video": "<video>"},
    "gemma3": {"image": "<image_soft_token>", "boi": "<start_of_image>", "eoi": "<end_of_image>"},
    "smolvlm2": {
        "fake_image": "<fake_token_around_image>", "image": "<image>", "end_of_utterance": "<end>",
        "global_image": "<global-img>",
    },
}  # fmt: skip


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Their processors of pictures and text together, without what they need for videos alone."""
    from transformers import Gemma3Processor, InternVLProcessor, Qwen3VLProcessor, SmolVLMProcessor
    from transformers.models.smolvlm import processing_smolvlm
    from transformers.processing_utils import ProcessorMixin

    monkeypatch.setattr(ProcessorMixin, "check_argument_for_proper_class", lambda *_: None)
    monkeypatch.setattr(processing_smolvlm, "num2words", object(), raising=False)

    def make(backbone: Any) -> Any:
        family, tokenizer, tokens = backbone.family, backbone.tokenizer, backbone.tokens_per_frame
        for name, token in NAMES[family].items():
            setattr(tokenizer, f"{name}_token", token)
            setattr(tokenizer, f"{name}_token_id", tokenizer.convert_tokens_to_ids(token))
        images = processor(family, backbone.side.image)
        if family == "qwen3-vl":
            return Qwen3VLProcessor(images, tokenizer, video_processor=None)
        if family == "internvl3":
            return InternVLProcessor(images, tokenizer, video_processor=None, image_seq_length=tokens)
        if family == "gemma3":
            return Gemma3Processor(images, tokenizer, image_seq_length=tokens)
        return SmolVLMProcessor(images, tokenizer, video_processor=None, image_seq_len=tokens)

    return make


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_with_frames_and_sensors_equals_the_published_processors(family: str, published: Any) -> None:
    backbone, question = tiny.build(family), "What's ahead, and how far? Détour à gauche"
    content = [*[{"type": "image"}] * 3, {"type": "text", "text": SENSOR * 8 + question}]
    text = backbone.tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], chat_template=backbone.side.template, tokenize=False,
        add_generation_prompt=True,
    )  # fmt: skip
    whole = {"crop_to_patches": False} if family == "internvl3" else {}  # as it takes frames of a video
    theirs = published(backbone)(text=[text], images=[[frame(seed=i) for i in range(3)]], **whole)["input_ids"][0]
    ours = backbone.prompt(question, 3, 8)
    assert ours == [int(i) for i in theirs]
    assert ours.count(backbone.image_id) == 3 * backbone.tokens_per_frame and ours.count(backbone.sensor_id) == 8
