import io

import numpy as np
import pytest
from PIL import Image

from training.data.labelled_sets.members import image
from training.data.labelled_sets.turned import STORED, UNKNOWN, UPRIGHT, is_ambiguous, labels_are, oriented

PIXELS = np.random.default_rng(5).integers(0, 256, (40, 30, 3), dtype=np.uint8)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_arrays_are_turned_as_the_decoder_turns_images(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    buffer = io.BytesIO()
    Image.fromarray(PIXELS).save(buffer, "PNG", exif=exif)
    np.testing.assert_array_equal(oriented(PIXELS, orientation), image(buffer.getvalue(), "x.png"))


def test_which_images_do_not_show_by_their_size():
    for size, ambiguous in (((40, 40), (2, 3, 4, 5, 6, 7, 8)), ((40, 30), (2, 3, 4))):
        assert tuple(value for value in range(1, 9) if is_ambiguous(value, size)) == ambiguous


@pytest.mark.parametrize("orientation", [2, 3, 4, 5, 6, 7, 8])
def test_edges_tell_of_which_image_labels_are(orientation):
    noise = np.random.default_rng(1).integers(0, 8, (48, 48, 3), dtype=np.uint8)
    mask = np.zeros((48, 48), np.uint8)
    mask[4:30, 8:18] = 1
    stored = noise + 150 * mask[..., None]
    upright = np.ascontiguousarray(oriented(stored, orientation))
    assert labels_are(upright, oriented(mask, orientation), orientation) == UPRIGHT
    assert labels_are(upright, mask, orientation) == STORED
    assert labels_are(noise, mask, orientation) == UNKNOWN
    assert labels_are(upright, np.zeros_like(mask), orientation) == UNKNOWN
