from typing import Any

import pytest

from curation.rights import is_opt_out_key, opt_outs_in_json, opt_outs_in_lines, opted_out, prohibits


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"noml": True}, True),
        ({"robots": "noindex, noml"}, True),
        ({"tdm-reservation": 1}, True),
        ({"TDM_Reservation": "1"}, True),
        ({"tdm:reservation": "1"}, True),
        ({"tdm-reservation": 0, "tdm-policy": "https://h.example/policy"}, False),
        ({"tdm-policy": "https://h.example/policy"}, False),
        ({"plus:DataMining": "http://ns.useplus.org/ldf/vocab/DMI-PROHIBITED"}, True),
        ({"XMP-plus:DataMining": "Prohibited for Generative AI/ML training"}, True),
        ({"dataMining": "DMI-PROHIBITED-SEECONSTRAINT"}, True),
        ({"data_mining": "http://ns.useplus.org/ldf/vocab/DMI-ALLOWED"}, False),
        ({"DataMining": "Unspecified - no prohibition defined"}, False),
        ({"meta": {"rights": {"noai": True}}}, True),
        ({"annotations": [{"id": 1}, {"noai": "yes"}]}, True),
        ({"meta": {"noai": False}}, False),
        ({"caption": "prohibited", "description": "DMI-PROHIBITED"}, False),
        ({"noai": "1.0"}, True),
        ({"noai": 1.0}, True),
        ({"noai": "t"}, True),
        ({"noai": " 'True' "}, True),
        ({"noai": [True]}, True),
        ({"noai": "10"}, False),
        ({"noai": "0.0"}, False),
        ({"tdm-reservation": [1]}, True),
        ({"tdm-reservation": ["0"]}, False),
        ({"tdmReservation": 1}, True),
        ({"no_ai": True}, True),
        ({"no-ai": True}, True),
        ({"optOut": "yes"}, True),
        ({"headers": [["Server", "x"], ["X-Robots-Tag", "noindex, noai"]]}, True),
        ({"headers": [("X-Robots-Tag", "noindex")]}, False),
        ({"headers": ["robots", "noai"]}, False),
        ({"headers": [{"name": "X-Robots-Tag", "value": "noai"}]}, True),
        ({"meta": {"name": "robots", "content": "noimageai"}}, True),
        ({"meta": {"name": "robots", "content": "index"}}, False),
        ({"meta": {"name": "caption", "value": "noai"}}, False),
        ({"exif": '{"noai": true}'}, True),
        ({"exif": ' {"rights": {"tdm-reservation": 1}, "n": ' + "9" * 5000 + "}"}, True),
        ({"exif": "{'noai': True}"}, True),
        ({"exif": '{"noai": false}'}, False),
        ({"headers": '[["X-Robots-Tag", "noai"]]'}, True),
        ({"caption": "[noai]"}, False),
    ],
)
def test_opt_outs(metadata: dict[str, Any], expected: bool) -> None:
    assert opted_out(metadata) is expected


def test_depth_is_bounded() -> None:
    value: Any = {"noai": True}
    for _ in range(50_000):
        value = {"a": [value]}
    assert opted_out(value) is False


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, False),
        ("DMI-ALLOWED", False),
        ("DMI-UNSPECIFIED", False),
        ("DMI-PROHIBITED", True),
        ("DMI-PROHIBITED-EXCEPTSEARCHENGINEINDEXING", True),
        ("tdm-reservation: 1", True),
    ],
)
def test_what_an_image_says(value: str | None, expected: bool) -> None:
    assert prohibits(value) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"caption": "it\'s", "noai": true,}', {"noai": True}),
        ('{"a": "", "X-Robots-Tag": ["noindex", "noai"], ', {"x-robots-tag": True}),
        ("{'opt_out': True, 'a': None}", {"opt_out": True}),
        ('{"raw": "{\\"noai\\": 1}", ', {"noai": True}),
        ('{"noai": false, "robots": "index", "tdm-reservation": 0, ', {}),
        ('{"caption": "noai", ', {}),
        ("", {}),
    ],
)
def test_opt_outs_of_damaged_json(text: str, expected: dict[str, bool]) -> None:
    assert opt_outs_in_json(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a cat\nrobots: noindex, noai\n", {"robots": True}),
        ("X-Robots-Tag: googlebot: noai\r\nServer: x", {"x-robots-tag": True}),
        ("a cat\r\nopt_out: true\r\nb", {"opt_out": True}),
        ("tdm-reservation = 1", {"tdm-reservation": True}),
        ("a poster: noai", {}),
        ("poster: noai", {}),
        ("noai: false", {}),
    ],
)
def test_opt_outs_of_lines(text: str, expected: dict[str, bool]) -> None:
    assert opt_outs_in_lines(text) == expected


def test_keys_in_any_spelling() -> None:
    assert all(map(is_opt_out_key, ("noai", "NoAI", "no_ai", "X-Robots-Tag", "tdmReservation", "opt-out")))
    assert not any(map(is_opt_out_key, ("caption", "noai_score", "")))
