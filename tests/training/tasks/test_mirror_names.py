import pytest

from training.tasks.mirror_names import mirror_name, unpaired


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("left_wrist", "right_wrist"),
        ("LeftWrist", "rightwrist"),
        ("wrist.R", "wrist.l"),
        ("l_eye", "r_eye"),
        ("RT-ear", "lt-ear"),
        ("r_left", "l_right"),
        ("nose", None),
        ("ball", None),
        ("lower_lip", None),
        ("controller", None),
    ],
)
def test_mirror_names(name, other):
    assert mirror_name(name) == other


def test_pairs_that_are_not_given():
    names = ["nose", "right_eye", "left_eye", "L_hand", "r_hand", "left_horn", "bright_spot", "r"]
    assert unpaired(names, ()) == [("left_eye", "right_eye"), ("L_hand", "r_hand")]
    assert unpaired(names, {1, 2}) == [("L_hand", "r_hand")]
    assert unpaired(names, {1}) == [("L_hand", "r_hand")]
