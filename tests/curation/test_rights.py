from typing import Any

import pytest

from curation.rights import opted_out, prohibits


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
