"""How much of a picture is covered by text: PP-OCRv6's detection network, without recognition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from curation.records import Batch, Pixels
from curation.scorers.base import Scorer, ScorerConfig, Weights
from curation.scorers.weights import hashed, package_file

_STRIDE = 32
_INSTALL = "Install it with: pip install 'rapidocr>=3.10'"


class TextOverlayConfig(ScorerConfig):
    """Settings of the text detector.

    The defaults are from a measurement on 200 overlays: 10 photographs at 640 px, 1 or 4 lines, four fonts, letters of
    2.5 to 15 % of the height, opaque and 43 % opaque. Share of the overlays that were found, and pictures a second on
    one thread:

    | max_side | opaque 3.5 % | opaque 2.5 % | faint 5 % | faint 2.5 % | pictures/s |
    |---|---|---|---|---|---|
    | 320 | 85 % | 50 % | 80 % | 10 % | 50 |
    | 480 | 100 % | 100 % | 95 % | 55 % | 23 |
    | 640 | 100 % | 100 % | 100 % | 90 % | 12 |

    With an unclip ratio of 1.2 and no dilation the share is within 25 % of the letters' bounding boxes for 95 % of what
    is found; rapidocr's own 1.6 with dilation is 1.3 times too large. A box threshold of 0.7 loses half of the small
    text; 0.5 marks a few things that are no text. Without `max_line_height` a coffee cup or a flower is one large box.
    """

    kind: Literal["rapidocr"] = "rapidocr"
    max_side: int = Field(
        480, ge=64, le=2048, multiple_of=_STRIDE, description="long side that the network sees, in pixels; no enlarging"
    )
    pixel_threshold: float = Field(0.3, gt=0, lt=1, description="text probability of a pixel")
    box_threshold: float = Field(0.6, gt=0, lt=1, description="mean text probability inside a box")
    unclip_ratio: float = Field(1.2, gt=0, description="growth of the shrunken regions that the network marks")
    max_line_height: float = Field(
        0.4,
        gt=0,
        le=1,
        description="a box whose short side is more than this share of the picture's short side is not a line of text",
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="cuda needs the onnxruntime-gpu package")


def detector_file() -> Path:
    """The detection network inside rapidocr's wheel, found without importing the package.

    Raises:
        MissingWeightsError: rapidocr is not installed or ships another network.
    """
    return package_file("rapidocr", "models/PP-OCRv6_det_small.onnx", "the text detection network", _INSTALL)


class TextOverlayScorer(Scorer):
    """Text boxes by PP-OCRv6 (small) and differentiable binarisation, as rapidocr runs them.

    The picture is shrunk so that its long side is at most `max_side`, and padded with grey at the right and bottom to
    a multiple of 32. One picture a call, no memory arena: memory is bounded by one square of `max_side`, and a
    picture's result does not depend on the others. ONNX Runtime gets as many threads as the worker has CPUs.

    Columns: `text_share` float32, 0..1, the area of the union of the boxes over the picture's area; `text_boxes`
    int32. No text gives 0 and 0. Text in the scene counts like an overlay; letters under about 12 pixels at `max_side`
    and faint ones are missed. About 23 pictures a second on one core.
    """

    name = "text_overlay"
    columns: ClassVar[Mapping[str, pa.DataType]] = {"text_share": pa.float32(), "text_boxes": pa.int32()}
    version = 1

    def __init__(self, config: TextOverlayConfig) -> None:
        super().__init__(config)
        self._session: Any = None
        self._find_boxes: Any = None

    def check(self) -> list[Weights]:
        return [hashed(detector_file())]

    def setup(self) -> None:
        import logging

        import onnxruntime as ort

        logging.getLogger("RapidOCR").setLevel(logging.ERROR)
        from rapidocr.ch_ppocr_det.utils import DBPostProcess

        options = ort.SessionOptions()
        options.intra_op_num_threads = max(1, int(self.config.resources.num_cpus))
        options.inter_op_num_threads = 1
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.enable_cpu_mem_arena = False
        options.enable_mem_pattern = False  # patterns are kept for every input shape
        options.log_severity_level = 3
        # Idle threads otherwise spin on the cores that the worker's other scorers need.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = ort.InferenceSession(str(detector_file()), options, providers=self._providers(ort))
        self._input = self._session.get_inputs()[0].name
        self._find_boxes = DBPostProcess(
            thresh=self.config.pixel_threshold,
            box_thresh=self.config.box_threshold,
            unclip_ratio=self.config.unclip_ratio,
            use_dilation=False,
        )

    def score(self, batch: Batch) -> dict[str, Sequence[Any]]:
        measured = [self._measure(pixels) for pixels in batch.pixels]
        return {"text_share": [share for share, _ in measured], "text_boxes": [count for _, count in measured]}

    def _measure(self, pixels: Pixels) -> tuple[float, int]:
        boxes, height, width = self.detect(pixels)
        return covered_share(boxes, height, width), len(boxes)

    def detect(self, pixels: Pixels) -> tuple[npt.NDArray[np.int32], int, int]:
        """Boxes [n, 4 corners, (x, y)] in a picture of the returned height and width (the size after shrinking)."""
        image, height, width = preprocess(pixels, self.config.max_side)
        probability = self._session.run(None, {self._input: image})[0]
        boxes, _ = self._find_boxes(probability, image.shape[2:])
        corners = np.asarray(boxes, dtype=np.int32).reshape(-1, 4, 2)
        inside = (corners[:, :, 0].min(axis=1) < width) & (corners[:, :, 1].min(axis=1) < height)
        sides = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2)
        lines = sides.min(axis=1, initial=np.inf) <= self.config.max_line_height * min(height, width)
        return corners[inside & lines], height, width

    def _providers(self, ort: Any) -> list[str]:
        available = ort.get_available_providers()
        if self.config.device == "cuda" and "CUDAExecutionProvider" not in available:
            raise ValueError(
                f"scorers.text_overlay.device is cuda, and ONNX Runtime here has {', '.join(available)}: install "
                "onnxruntime-gpu in place of onnxruntime, or use auto or cpu"
            )
        wanted = (
            ["CPUExecutionProvider"]
            if self.config.device == "cpu"
            else ["CUDAExecutionProvider", "CPUExecutionProvider"]
        )
        return [name for name in wanted if name in available]


def preprocess(pixels: Pixels, max_side: int) -> tuple[npt.NDArray[np.float32], int, int]:
    """RGB uint8 [height, width, 3] -> float32 [1, 3, h, w] in -1..1, BGR, h and w padded to multiples of 32; and the
    height and width of the part that is picture."""
    import cv2

    height, width = pixels.shape[:2]
    scale = min(1.0, max_side / max(height, width))
    image: npt.NDArray[Any] = pixels
    if scale < 1:
        height, width = max(1, round(height * scale)), max(1, round(width * scale))
        image = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)
    padded = np.zeros((1, 3, _round_up(height), _round_up(width)), dtype=np.float32)  # 0 is the middle grey
    padded[0, :, :height, :width] = image[:, :, ::-1].transpose(2, 0, 1)
    padded[0, :, :height, :width] *= np.float32(1 / 127.5)
    padded[0, :, :height, :width] -= np.float32(1)
    return padded, height, width


def covered_share(boxes: npt.NDArray[np.int32], height: int, width: int) -> float:
    """The share of a picture's pixels inside the union of quadrilaterals [n, 4, 2]."""
    import cv2

    if not len(boxes):
        return 0.0
    mask = np.zeros((height, width), dtype=np.uint8)
    for box in boxes:  # one by one: fillPoly of all together leaves holes where two overlap
        cv2.fillPoly(mask, [box], 1)
    return float(np.count_nonzero(mask) / mask.size)


def _round_up(side: int) -> int:
    return -(-side // _STRIDE) * _STRIDE
