"""Recognising a format from the first bytes, so that a non-image costs a microsecond."""

from __future__ import annotations

import struct

_BMP_HEADER_SIZES = frozenset((12, 16, 40, 52, 56, 64, 108, 124))
_HEIF_BRANDS = frozenset((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1"))

# Formats that are known and never decoded: (offset, magic, name).
_OTHERS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\xff\x0a", "JPEG XL"),
    (0, b"\x00\x00\x00\x0cJXL \r\n\x87\n", "JPEG XL"),
    (0, b"8BPS", "PSD"),
    (0, b"\x00\x00\x01\x00", "ICO"),
    (0, b"\x00\x00\x02\x00", "CUR"),
    (0, b"icns", "ICNS"),
    (0, b"DDS ", "DDS"),
    (0, b"v/1\x01", "OpenEXR"),
    (0, b"#?RADIANCE", "Radiance HDR"),
    (0, b"#?RGBE", "Radiance HDR"),
    (0, b"FLIF", "FLIF"),
    (0, b"BPG\xfb", "BPG"),
    (0, b"qoif", "QOI"),
    (0, b"AT&TFORM", "DjVu"),
    (0, b"%!PS", "PostScript"),
    (0, b"\xc5\xd0\xd3\xc6", "PostScript"),
    (0, b"\xd7\xcd\xc6\x9a", "WMF"),
    (0, b"gimp xcf", "XCF"),
    (0, b"II\xbc\x01", "JPEG XR"),
    (0, b"IIU\x00", "camera raw"),
    (0, b"IIRO", "camera raw"),
    (0, b"IIRS", "camera raw"),
    (0, b"MMOR", "camera raw"),
    (0, b"FUJIFILMCCD-RAW", "camera raw"),
    (0, b"SIMPLE  =", "FITS"),
    (0, b"PF\n", "PFM"),
    (0, b"Pf\n", "PFM"),
    (0, b"P7\n", "PAM"),
    (0, b"\x8aMNG\r\n\x1a\n", "MNG"),
    (0, b"\x8bJNG\r\n\x1a\n", "JNG"),
    (0, b"\xabKTX ", "KTX"),
    (128, b"DICM", "DICOM"),
)


def sniff(data: bytes) -> tuple[str, bool] | None:
    """Name the format of `data`.

    Returns:
        (name, decodable), or None when the bytes are not an image in any known format. Formats without a magic
        number (TGA) are not known.
    """
    head = data[:32]
    if head[:3] == b"\xff\xd8\xff":
        return "JPEG", True
    if head[:8] == b"\x89PNG\r\n\x1a\n":
        return "PNG", True
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP", True
    if head[:6] in (b"GIF87a", b"GIF89a"):
        return "GIF", True
    if head[:4] in (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+"):
        return ("camera raw", False) if head[8:11] == b"CR\x02" else ("TIFF", True)
    if head[:2] == b"BM" and len(head) >= 18 and struct.unpack_from("<I", head, 14)[0] in _BMP_HEADER_SIZES:
        return "BMP", True
    if head[:1] == b"P" and head[1:2] in b"123456" and head[2:3] and head[2:3] in b" \t\r\n#":
        return "PPM", True
    if head[:12] == b"\x00\x00\x00\x0cjP  \r\n\x87\n" or head[:4] == b"\xff\x4f\xff\x51":
        return "JPEG2000", True
    if head[4:8] == b"ftyp":
        return _base_media(data)
    for offset, magic, name in _OTHERS:
        if data.startswith(magic, offset):
            return name, False
    return ("SVG", False) if _is_svg(data) else None


def _base_media(data: bytes) -> tuple[str, bool] | None:
    """ISO base media files: AVIF, HEIF, Canon raw, or a video."""
    length = min(struct.unpack_from(">I", data)[0], 256)
    brands = {data[8:12]} | {data[i : i + 4] for i in range(16, length, 4)}
    if brands & {b"avif", b"avis"}:
        return "AVIF", True
    if b"crx " in brands:
        return "camera raw", False
    return ("HEIF", False) if brands & _HEIF_BRANDS else None


def _is_svg(data: bytes) -> bool:
    head = data[:1024].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if head.startswith(b"<svg"):
        return True
    return head.startswith((b"<?xml", b"<!--", b"<!doctype svg")) and b"<svg" in head
