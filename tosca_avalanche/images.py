"""Image files: which there are, and how each kind becomes RGB."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from tosca_avalanche.errors import StreamError

EXTENSIONS = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}


def class_folders(side: Path) -> list[Path]:
    """Return the class folders of one side, sorted; hidden ones are left out."""
    if not side.is_dir():
        return []
    return sorted(p for p in side.iterdir() if p.is_dir() and not p.name.startswith((".", "__")))


def image_files(class_folder: Path) -> list[Path]:
    """Return the image files of a class, sorted; hidden files and other types are left out."""
    if not class_folder.is_dir():
        return []
    return sorted(
        p
        for p in class_folder.iterdir()
        if p.suffix.lower() in EXTENSIONS and not p.name.startswith(".")
    )


def read_image(path: Path) -> Image.Image:
    """Decode an image to RGB; a file that can't be decoded is an error with its path.

    Transparent pixels come out on white, as a viewer shows them (dropping alpha would bring
    out colours that nobody has seen); 16-bit grey is scaled to 8 bits.
    """
    try:
        with Image.open(path) as image:
            pixels, most = image.width * image.height, Image.MAX_IMAGE_PIXELS
            if most is not None and pixels > most:
                raise ValueError(f"it claims {image.width} x {image.height} pixels")
            return to_rgb(image)
    except Exception as error:  # Pillow's plugins raise many kinds
        raise StreamError(
            f"image {path} can't be decoded ({error}); replace it or take it away (the stream "
            f"'folder' leaves such files out with skip_bad=True)"
        ) from error


# part of the key of stored features: count it up when pixels come out otherwise
read_image.version = 2  # type: ignore[attr-defined]


def to_rgb(image: Image.Image) -> Image.Image:
    """Turn an image of any mode into RGB.

    :raises ValueError: floating-point pixels, whose range nobody knows.
    """
    if image.mode == "F":
        raise ValueError("it has floating-point pixels; save it with 8 or 16 bits")
    if image.mode.startswith("I"):  # 16 bits, or 32 that hold 16: Pillow would clip them
        values = np.asarray(image).astype(np.int64)
        return Image.fromarray((np.clip(values, 0, 65535) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, "white")
        return Image.alpha_composite(white, rgba).convert("RGB")
    return image.convert("RGB")


def images_below(folder: Path) -> list[Path]:
    """Return the image files of a folder and of the folders in it, sorted, hidden ones left out."""
    return image_files(folder) + [p for inner in class_folders(folder) for p in images_below(inner)]


def bad_images(paths: list[Path]) -> list[Path]:
    """Return those of the files that can't be decoded; reads them all."""
    bad = []
    for path in paths:
        try:
            read_image(path)
        except StreamError:
            bad.append(path)
    return bad
