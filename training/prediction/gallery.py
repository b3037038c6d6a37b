"""One HTML page of the first pictures: nothing beside the file is needed, nothing in a name is taken as HTML."""

from __future__ import annotations

import base64
import html
from pathlib import Path

import cv2
import numpy as np

from curation.sources.names import escape_name
from training.prediction.boxes import Image
from training.prediction.files import land
from training.prediction.formats import jpeg

_STYLE = (
    "body{font:14px/1.4 system-ui,sans-serif;margin:2em;background:#fafafa;color:#222}"
    "main{display:flex;flex-wrap:wrap;gap:12px}"
    "figure{margin:0;background:#fff;border:1px solid #ddd;padding:6px;max-width:SIDEpx}"
    "img{display:block;max-width:100%}figcaption{overflow-wrap:anywhere;padding-top:4px}"
    "@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}figure{background:#222;border-color:#444}}"
)


class Gallery:
    """Thumbnails of the first pictures, in the order in which they were seen.

    Args:
        limit: pictures on the page.
        side: long side of a thumbnail, pixels.
    """

    def __init__(self, limit: int, side: int) -> None:
        self.limit, self.side = limit, side
        self._seen: dict[str, tuple[bytes, str] | None] = {}

    def see(self, name: str) -> bool:
        """Take a place for a picture; whether it is on the page."""
        if name not in self._seen and len(self._seen) < self.limit:
            self._seen[name] = None
        return name in self._seen

    def add(self, name: str, image: Image, caption: str = "") -> None:
        """A picture uint8 [H, W, 3] with a place; others are not kept."""
        if name not in self._seen:
            return
        factor = self.side / max(image.shape[:2])
        if factor < 1:
            height, width = (max(1, round(length * factor)) for length in image.shape[:2])
            image = np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA), np.uint8)
        self._seen[name] = jpeg(image, 85), caption

    def add_file(self, name: str, path: Path) -> None:
        """An overlay of an earlier run, if it can be read."""
        if name in self._seen:
            try:
                image = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
            except (OSError, cv2.error):  # an empty file
                return
            if image is not None:
                self.add(name, np.ascontiguousarray(image[..., ::-1]), "of an earlier run")

    def page(self, title: str, lines: list[str]) -> str:
        """The page, with a heading and some lines of text."""

        def text(value: str) -> str:
            return html.escape(escape_name(value), quote=True)

        figures = []
        for name, entry in self._seen.items():
            if entry is not None:
                data, caption = base64.b64encode(entry[0]).decode(), text(entry[1])
                figures.append(
                    f'<figure><img src="data:image/jpeg;base64,{data}" alt="{text(name)}" loading="lazy">'
                    f"<figcaption><b>{text(name)}</b><br>{caption}</figcaption></figure>"
                )
        paragraphs = "".join(f"<p>{text(line)}</p>\n" for line in lines)
        style = _STYLE.replace("SIDE", str(self.side))
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{text(title)}</title>\n'
            f'<meta name="viewport" content="width=device-width"><style>{style}</style></head>\n'
            f"<body><h1>{text(title)}</h1>\n{paragraphs}<main>\n" + "\n".join(figures) + "\n</main></body></html>\n"
        )

    def write(self, path: Path, title: str, lines: list[str]) -> None:
        """The page as a file, whole or not at all."""
        land(path, self.page(title, lines).encode())
