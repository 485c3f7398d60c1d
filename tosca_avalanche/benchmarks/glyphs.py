"""Characters drawn with the fonts that come with matplotlib: many classes, no files of ours."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from avalanche.benchmarks import CLScenario
from matplotlib.ft2font import FT2Font
from PIL import Image, ImageDraw, ImageFont

from tosca_avalanche.backbones.transforms import Transforms
from tosca_avalanche.benchmarks.class_incremental import LabelledImages, as_is, class_incremental
from tosca_avalanche.benchmarks.registry import register_stream
from tosca_avalanche.errors import StreamError
from tosca_avalanche.seeding import derive_seed

FONTS = (
    "DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique",
    "DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic",
    "DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique",
)  # fmt: skip
SIZE = 32


@register_stream("glyphs")
def glyphs(
    transforms: Transforms | None = None,
    *,
    n_classes: int = 500,
    classes_per_task: int | Sequence[int] = 10,
    init_classes: int | None = None,
    class_order_seed: int | None = 1993,
    train_per_class: int = 12,
    test_per_class: int = 6,
    image_seed: int = 0,
) -> CLScenario:
    """Return a stream of characters: 50 tasks of 10 by default.

    Letters and symbols without accents, of many scripts; two that look the same in the
    first font (Latin A, Greek Alpha) are one class. Each image is one of eleven fonts,
    18 to 26 pixels high, turned by up to 12 degrees, moved by up to 3 pixels; white on
    black, 32 x 32 pixels. An image depends on its class, its number and ``image_seed``
    alone, not on how many there are.

    :param transforms: of the backbone; the paper's by default.
    :param n_classes: the first so many characters, by code point.
    :param classes_per_task: classes of each task, one number or a list.
    :param init_classes: classes of the first task, where it differs.
    :param class_order_seed: seed of the class order; None for code points.
    :raises StreamError: more classes than there are characters.
    """
    known = characters()
    if not 1 <= n_classes <= len(known):
        raise StreamError(f"n_classes={n_classes}: there are 1 to {len(known)} characters")
    if train_per_class < 1 or test_per_class < 0:
        raise StreamError(
            f"train_per_class={train_per_class} must be at least 1, "
            f"test_per_class={test_per_class} at least 0"
        )
    names = list(known[:n_classes])
    parts = []
    for side, n in (("train", train_per_class), ("test", test_per_class)):
        images = [draw(name, derive_seed(image_seed, side, i)) for name in names for i in range(n)]
        targets = [t for t in range(n_classes) for _ in range(n)]
        parts.append(LabelledImages(images, targets, as_is))
    return class_incremental(
        parts[0], parts[1], names, transforms, classes_per_task, init_classes, class_order_seed
    )


@functools.cache
def characters() -> tuple[str, ...]:
    """Return the characters that all fonts have and that look different, by code point."""
    maps = [set(FT2Font(str(font_file(font))).get_charmap()) for font in FONTS]
    out, seen = [], set()
    for code in sorted(set.intersection(*maps)):
        character = chr(code)
        if unicodedata.category(character)[0] not in "LS" or unicodedata.decomposition(character):
            continue
        image = np.asarray(_plain(character, FONTS[0], 24))
        if image.any() and image.tobytes() not in seen:
            seen.add(image.tobytes())
            out.append(character)
    return tuple(out)


def draw(character: str, seed: int) -> np.ndarray:
    """Return one image [32, 32] uint8 of a character."""
    draws = np.random.default_rng(derive_seed(seed, ord(character)))
    font, size = FONTS[draws.integers(len(FONTS))], int(draws.integers(18, 27))
    angle, shift = draws.uniform(-12, 12), draws.integers(-3, 4, 2)
    turned = _plain(character, font, size).rotate(angle, Image.Resampling.BILINEAR)
    return np.asarray(turned.transform(
        (SIZE, SIZE), Image.Transform.AFFINE, (1, 0, int(shift[0]), 0, 1, int(shift[1]))
    ))  # fmt: skip


def font_file(font: str) -> Path:
    """Return the file of one of matplotlib's fonts."""
    return Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf"


@functools.cache
def _font(font: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(font_file(font)), size)


def _plain(character: str, font: str, size: int) -> Image.Image:
    """Return the character, its box in the middle of the image."""
    face = _font(font, size)
    left, top, right, bottom = face.getbbox(character)
    image = Image.new("L", (SIZE, SIZE))
    corner = ((SIZE - (right - left)) / 2 - left, (SIZE - (bottom - top)) / 2 - top)
    ImageDraw.Draw(image).text((round(corner[0]), round(corner[1])), character, 255, face)
    return image
