import time

import pytest

from curation.sources.lenient_json import DamagedJsonError, loads, loads_row


def test_what_is_right_is_read_as_it_is() -> None:
    assert loads(b'\xef\xbb\xbf {"a": [1, -2, 3.5, null]} \n') == ({"a": [1, -2, 3.5, None]}, None)
    assert loads(b"7") == (7, None)


def test_of_a_key_twice_an_opt_out_counts() -> None:
    row = b'[{"noai": true, "a": 1, "noai": false, "a": 2}, {"noai": false, "noai": true}]'
    assert loads(row) == ([{"noai": True, "a": 2}, {"noai": True}], None)


def test_an_opt_out_after_the_object_replaces_one_that_is_none() -> None:
    assert loads(b'{"noai": false} {"noai": true}') == ({"noai": True}, "text after the JSON object")


def test_the_names_of_a_damaged_row() -> None:
    row = b'{"file_name": "caf\\u00e9 \\"1\\".jpg", "mask_file_name": "m.png", "noai": "yes"'
    with pytest.raises(DamagedJsonError) as caught:
        loads(row)
    assert caught.value.names == {"file_name": 'café "1".jpg', "mask_file_name": "m.png"}
    assert caught.value.opt_outs == {"noai": True}


@pytest.mark.parametrize("row", [b'{"file_name": "a.jpg", "a": 1,}', b"[1]", b"", b"{}"])
def test_a_row_that_says_nothing_is_none(row: bytes) -> None:
    assert loads_row(row) is None


@pytest.mark.parametrize(
    "piece",
    [b'"', b"'", b'"a', b'"aa"', b'"aa":', b'"aa": [', b'"aa" ', b'"aa":"', b"\\", b'"file_name":"', b"[", b" "],
)
def test_damage_of_any_kind_takes_little_time(piece: bytes) -> None:
    data = b'{"noai": true, ' + piece * ((1 << 20) // len(piece))
    start = time.process_time()
    with pytest.raises(DamagedJsonError) as caught:
        loads(data)
    assert caught.value.opt_outs == {"noai": True}
    assert time.process_time() - start < 5
