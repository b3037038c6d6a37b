from collections import Counter

from curation.sources.unused import Unused, unused_message


def test_files_are_counted_with_a_few_examples() -> None:
    unused = Unused(Counter({"(hidden)": 1}))
    for name in ("a.npy", "b.npy", "noext", "c.xml"):
        unused.add(name)
    unused.merge({".npy": 2}, ["x.npy"])
    assert dict(unused.counts) == {"(hidden)": 1, ".npy": 4, "(other)": 1, ".xml": 1}
    assert unused.examples == ["a.npy", "b.npy", "noext"]


def test_the_message() -> None:
    assert unused_message({}, []) is None
    assert unused_message({".json": 1}, ["lost.json"]) == (
        "1 file beside the images not used: 1 .json; such as lost.json"
    )
    assert unused_message({".npy": 1200, "(hidden)": 2}, []) == (
        "1,202 files beside the images not used: 1,200 .npy, 2 (hidden)"
    )
    many = unused_message({f".{letter}": 1 for letter in "abcdefgh"}, ["x.a", "y.b"])
    assert many == "8 files beside the images not used: 1 .a, 1 .b, 1 .c, 1 .d, 1 .e, 1 .f, 2 others; such as x.a, y.b"
