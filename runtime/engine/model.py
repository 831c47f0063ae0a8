"""A bundle's graphs behind four calls: frames to features, sensors to tokens, ids to embeddings, a prompt to what the
decoder reads. All of it computes where it is called: ``worker`` says where that is.

What a bundle asks for is checked when it is opened: one made for other sensors, frames or tokens than this runtime
makes is refused with the difference, not run on what happens to fit. Knows no time, no session and no words.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import msgspec
import numpy as np
from numpy.typing import NDArray

from handrail.runtime.bundle import Bundle
from handrail.runtime.engine.prompt import Features, Laid, Sensed, lay
from handrail.runtime.grid import BINS, HISTORY_NS, STREAMS, Statistics, grids
from handrail.runtime.grid.imu import AXES, LENGTH
from handrail.runtime.preprocess import ImagePlan, pixels
from handrail.runtime.preprocess.prompt import Prompter, TokenPlan, Turn
from handrail.runtime.providers import Provider, open_session, tensorrt_options
from handrail.streams.cache import cache_folder
from handrail.streams.cameras import Rig
from handrail.streams.errors import BundleError, ConfigError, InputError
from handrail.streams.samples import Sample

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

WARM_UP_WINDOWS = (1, 128)  # of the IMU encoder: alone, and two IMUs in all bins


@dataclass(frozen=True, slots=True)
class Felt:
    """The sensors of an interval as the language model takes them."""

    sensed: Sensed
    valid: dict[str, float]  # stream -> share of its bins that hold a reading
    gates: dict[str, float]  # stream -> how far the fusion opened it for this question
    times_ms: dict[str, float]  # measured: "grids", "imu" (its encoder), "fusion"


class Model:
    """Raises BundleError for a bundle that this runtime can't serve, MissingDependencyError for a provider."""

    def __init__(self, bundle: Bundle, provider: Provider = "cpu", threads: int = 1) -> None:
        self._bundle, self._provider, self._threads = bundle, provider, threads
        about = bundle.manifest
        self.name = about.name
        self.plan: ImagePlan = self._section(about.preprocess, ImagePlan, "preprocess")
        self.tokens: TokenPlan = self._section(about.tokens, TokenPlan, "tokens")
        self.table = bundle.embeddings()
        self.d_model = int(self.table.shape[1])
        template = bundle.read("chat_template.jinja").decode("utf-8", "replace")
        try:
            self.prompter = Prompter(bundle.path("tokenizer.json"), template, self.tokens)
        except ConfigError as e:
            self._refuse("tokenizer.json", str(e))
        grid = about.vision.get("grid")
        self.grid = None if grid is None else (int(grid[0]), int(grid[1]))
        self.axes = int(about.decoder.get("axes", 1))
        self.deepstack_layers = int(about.decoder.get("deepstack", 0))
        self.both_ways = bool(about.decoder.get("both_ways", False))
        self.tokens_per_frame = int(about.vision["tokens_per_frame"])
        self.sensor_tokens = int(about.fusion.get("tokens", 0)) if about.fusion else 0
        self._vision = self._session("vision.onnx")
        self._fusion = self._session("fusion.onnx") if self.sensor_tokens else None
        self._primus = self._session("primus.onnx") if "primus.onnx" in about.files else None
        self._statistics = self._read_statistics() if self.sensor_tokens else None
        self._check()
        self._serial = 0
        self._imu_ms = 0.0

    # What is computed.

    def see(self, picture: U8) -> Features:
        """One upright picture [H, W, 3] RGB."""
        out = self._vision.run(None, {"pixels": pixels(picture[None], self.plan)})
        self._serial += 1
        deepstack = out[1][:, 0] if len(out) > 1 else None
        return Features(self._serial, out[0][0], deepstack)

    def feel(self, samples: Iterable[Sample], rig: Rig, start_ns: int, end_ns: int, question: str) -> Felt | None:
        """Of [start, end) on the device clock; None for a bundle without sensors. ``samples`` as ``grid.grids`` takes
        them, with ``HISTORY_NS`` before the start."""
        if self._fusion is None or self._statistics is None:
            return None
        self._imu_ms, began = 0.0, time.perf_counter()
        encode = None if self._primus is None else self._encode_imu
        found = self._statistics.apply(grids(samples, rig, start_ns, end_ns, encode))
        gridded = time.perf_counter()
        fed: dict[str, Any] = {"question": self._asked_for(question)}
        for stream in STREAMS:
            fed[stream], fed[f"{stream}_valid"] = found[stream].values[None], found[stream].valid[None]
        taken = {i.name for i in self._fusion.get_inputs()}
        tokens, gates = self._fusion.run(["tokens", "gates"], {k: v for k, v in fed.items() if k in taken})
        grids_ms, fusion_ms = (gridded - began) * 1e3 - self._imu_ms, (time.perf_counter() - gridded) * 1e3
        self._serial += 1
        return Felt(
            Sensed(self._serial, tokens[0]),
            {stream: round(float(found[stream].valid.mean()), 4) for stream in STREAMS},
            {stream: round(float(gate), 4) for stream, gate in zip(STREAMS, np.ravel(gates), strict=False)},
            {"grids": grids_ms, "imu": self._imu_ms, "fusion": fusion_ms},
        )

    def embed(self, ids: Sequence[int] | I64) -> F32:
        """[S, d]"""
        return np.asarray(self.table[np.asarray(ids, np.int64)], np.float32)

    def lay(self, turns: Sequence[Turn], frames: Sequence[Features], sensed: Sequence[Sensed]) -> Laid:
        """A conversation as the decoder reads it, frames and sensors in the order of its turns. Raises InputError."""
        ids = self.prompter.encode(self.prompter.talk(turns))
        return lay(
            np.array(ids, np.int64), frames, sensed, embed=self.embed, image_id=self.tokens.image,
            sensor_id=self.tokens.sensor, grid=self.grid,
        )  # fmt: skip

    def warm_up(self) -> None:
        """Every graph but the decoder, in the shapes it will see."""
        self.see(np.zeros((self.plan.height, self.plan.width, 3), np.uint8))
        for count in WARM_UP_WINDOWS if self._primus is not None else ():
            self._encode_imu(np.zeros((count, AXES, LENGTH), np.float32))
        if self._fusion is not None:
            self.feel((), _NO_RIG, 0, BINS, "?")

    @property
    def history_ns(self) -> int:
        """How far before its interval ``feel`` looks."""
        return HISTORY_NS

    # Steps

    def _encode_imu(self, windows: F32) -> F32:
        assert self._primus is not None
        began = time.perf_counter()
        features: F32 = self._primus.run(["features"], {"windows": windows})[0]
        self._imu_ms += (time.perf_counter() - began) * 1e3
        return features

    def _asked_for(self, question: str) -> F32:
        """The fusion is conditioned on the mean of the question's embeddings [1, d]."""
        ids = self.prompter.encode(question)
        mean = self.embed(ids).mean(axis=0) if ids else np.zeros(self.d_model, np.float32)
        return mean[None].astype(np.float32)

    def _session(self, graph: str) -> Any:
        options = provider_options(self._bundle, graph, self._provider)
        return open_session(self._bundle.path(graph), self._provider, options, self._threads)

    def _read_statistics(self) -> Statistics:
        try:
            return Statistics.from_json(msgspec.json.decode(self._bundle.read("statistics.json")))
        except (InputError, msgspec.DecodeError) as e:
            self._refuse("statistics.json", str(e))

    def _section(self, section: Mapping[str, Any], kind: Any, name: str) -> Any:
        try:
            return msgspec.convert(section, kind)
        except msgspec.ValidationError as e:
            self._refuse("manifest.json", f"section {name}: {e}")

    def _check(self) -> None:
        rows, fed = len(self.table), (self.tokens.image, self.tokens.sensor, *self.tokens.end)
        if max(fed) >= rows:
            self._refuse("embeddings.npy", f"has {rows} rows, the tokens of the manifest go up to {max(fed)}")
        _same_inputs(self._vision, {"pixels": self.plan.shape}, "vision.onnx", self._refuse)
        if self._primus is not None:
            _same_inputs(self._primus, {"windows": (AXES, LENGTH)}, "primus.onnx", self._refuse)
        if self._fusion is not None:
            sensors: dict[str, tuple[int, ...]] = {"question": (self.d_model,)}
            sensors |= {stream: (BINS, width) for stream, width in STREAMS.items()}
            sensors |= {f"{stream}_valid": (BINS,) for stream in STREAMS}
            _same_inputs(self._fusion, sensors, "fusion.onnx", self._refuse)

    def _refuse(self, file: str, why: str) -> NoReturn:
        raise BundleError(f"{self._bundle.folder / file}: {why}; export the bundle again with this version of Handrail")


def provider_options(bundle: Bundle, graph: str, provider: Provider) -> dict[str, str]:
    """What TensorRT must be told of a graph; nothing for the others."""
    return tensorrt_options(bundle.manifest, graph, cache_folder("tensorrt")) if provider == "tensorrt" else {}


_NO_RIG = Rig(generation=2, cameras={}, imus={}, T_device_cpf=np.eye(4), magnetometer={})


def _same_inputs(
    session: Any, expected: Mapping[str, tuple[int, ...]], file: str, refuse: Callable[[str, str], None]
) -> None:
    """Each input of a graph is one that this runtime makes, of the same shape but for the first axis."""
    for i in session.get_inputs():
        if i.name not in expected:
            refuse(file, f"asks for {i.name!r}, which isn't made here; it is for another set of sensors or frames")
        if tuple(i.shape[1:]) != tuple(expected[i.name]):
            refuse(file, f"{i.name}: expected {list(expected[i.name])}, it takes {list(i.shape[1:])}")
