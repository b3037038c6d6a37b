import io
import struct
import time
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin

from curation.codecs.rights import data_mining
from curation.records import Batch
from curation.scorers.header import HeaderScorer
from curation.scorers.safety import SafetyConfig, SafetyScorer

VOCABULARY = "http://ns.useplus.org/ldf/vocab/"
FORMATS = ["JPEG", "PNG", "WEBP", "TIFF", "AVIF", "GIF"]


def packet(inner: str = "", attributes: str = "") -> bytes:
    return (
        '<?xpacket begin="" id="W5M0MpCehiHzreSzNTczkc9d"?><x:xmpmeta xmlns:x="adobe:ns:meta/">'
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description rdf:about="" '
        f'xmlns:plus="http://ns.useplus.org/ldf/xmp/1.0/" xmlns:tdm="http://www.w3.org/ns/tdmrep/" {attributes}>'
        f'{inner}</rdf:Description></rdf:RDF></x:xmpmeta><?xpacket end="w"?>'
    ).encode()


def image_bytes(name: str, xmp: bytes) -> bytes:
    buffer = io.BytesIO()
    image = Image.new("RGB", (64, 48), (200, 10, 30))
    if name == "PNG":
        info = PngImagePlugin.PngInfo()
        info.add_itxt("XML:com.adobe.xmp", xmp.decode())
        image.save(buffer, name, pnginfo=info)
    elif name == "TIFF":
        image.save(buffer, name, tiffinfo={700: xmp})
    elif name == "GIF":
        image.save(buffer, name, comment=xmp)
    else:
        image.save(buffer, name, xmp=xmp)
    return buffer.getvalue()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("inner", "attributes", "expected"),
    [
        ("", f'plus:DataMining="{VOCABULARY}DMI-PROHIBITED"', "DMI-PROHIBITED"),
        (f"<plus:DataMining>{VOCABULARY}DMI-PROHIBITED-AIMLTRAINING</plus:DataMining>", "",
         "DMI-PROHIBITED-AIMLTRAINING"),
        (f'<plus:DataMining rdf:resource="{VOCABULARY}DMI-PROHIBITED-GENAIMLTRAINING"/>', "",
         "DMI-PROHIBITED-GENAIMLTRAINING"),
        ("<plus:DataMining>DMI-PROHIBITED-SEECONSTRAINT</plus:DataMining>", "", "DMI-PROHIBITED-SEECONSTRAINT"),
        ("", f"plus:DataMining = '{VOCABULARY}DMI-ALLOWED'", "DMI-ALLOWED"),
        ("<tdm:reservation>1</tdm:reservation>", "", "tdm-reservation: 1"),
        ("<tdm:reservation>0</tdm:reservation>", "", None),
        ("<dc:title>DataMining DMI-PROHIBITED</dc:title>", "", None),
        ("", "", None),
    ],
)  # fmt: skip
def test_every_form_in_every_format(name: str, inner: str, attributes: str, expected: str | None) -> None:
    data = image_bytes(name, packet(inner, attributes))
    assert data_mining(data, name) == expected
    columns, _ = HeaderScorer().measure(data)
    assert columns["data_mining"] == expected


def test_what_prohibits_counts_before_what_allows() -> None:
    both = packet(f"<plus:DataMining>{VOCABULARY}DMI-PROHIBITED</plus:DataMining>", 'plus:DataMining="DMI-ALLOWED"')
    assert data_mining(image_bytes("JPEG", both), "JPEG") == "DMI-PROHIBITED"


def test_compressed_text_of_a_png_is_read_to_a_bound() -> None:
    data = image_bytes("PNG", packet())
    for text, expected in (
        (packet("", 'plus:DataMining="DMI-PROHIBITED"'), "DMI-PROHIBITED"),
        (bytes(200 << 20), None),
        (b"broken", None),
    ):
        body = b"XML:com.adobe.xmp\0\x01\0\0\0" + (zlib.compress(text) if expected or len(text) > 9 else text)
        chunk = struct.pack(">I", len(body)) + b"iTXt" + body + struct.pack(">I", zlib.crc32(b"iTXt" + body))
        assert data_mining(data[:33] + chunk + data[33:], "PNG") == expected


def test_the_scorer_of_opt_outs_reads_it() -> None:
    scorer = SafetyScorer(SafetyConfig())
    scorer.setup()
    values = ["DMI-PROHIBITED-AIMLTRAINING", "DMI-ALLOWED", None, "tdm-reservation: 1"]
    columns = {name: [None] * 4 for name in scorer.needs} | {"data_mining": values}
    assert scorer.score(Batch(list("abcd"), [], columns))["opt_out"] == [True, False, False, True]


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(FORMATS), st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=8), st.data()
)
def test_any_bytes_give_an_answer(name: str, changes: list[tuple[int, int]], data: st.DataObject) -> None:
    content = bytearray(image_bytes(name, packet("", 'plus:DataMining="DMI-PROHIBITED"')))
    for place, value in changes:
        content[place % len(content)] = value
    cut = bytes(content[: data.draw(st.integers(0, len(content)))])
    for kind in FORMATS:
        assert data_mining(cut, kind) in (None, "DMI-PROHIBITED") or changes


@pytest.mark.parametrize("unit", [b"\xff\xe1\x00\x02", b"\xff\xe1\x00\x03 ", b"\xff", b"\x00"])
def test_hostile_headers_are_quick(unit: bytes) -> None:
    data = b"\xff\xd8" + unit * ((8 << 20) // len(unit))
    started = time.perf_counter()
    assert data_mining(data, "JPEG") is None
    assert data_mining(data, "GIF") is None
    xmp = b"http://ns.adobe.com/xap/1.0/\0" + b":DataMining =" * 4000
    segment = b"\xff\xe1" + struct.pack(">H", len(xmp) + 2) + xmp
    assert data_mining(b"\xff\xd8" + segment * 100, "JPEG") is None
    assert time.perf_counter() - started < 1
