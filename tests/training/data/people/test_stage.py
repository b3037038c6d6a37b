import numpy as np
import pytest

from training.data.keys import generator
from training.data.people.config import PeopleConfig
from training.data.people.looks import sample_look
from training.data.people.materials import Materials
from training.data.people.poses import sample_pose
from training.data.people.stage import sample_camera, sample_grounds, sample_yaw, stand


@pytest.mark.parametrize("portrait", [False, True])
def test_the_first_person_is_in_the_picture_upright(portrait: bool) -> None:
    config = PeopleConfig()
    height, width = config.size
    for key in range(30):
        rng = generator(key)
        pose, kind = sample_pose(rng)
        look = sample_look(rng, config, Materials(), kind)
        body = stand(look, pose, (0.0, 0.0), 0.3)
        camera = sample_camera(rng, config, [body], [look], portrait)
        np.testing.assert_allclose(camera.turn @ camera.turn.T, np.eye(3), atol=1e-12)
        assert np.linalg.det(camera.turn) > 0
        assert (camera.turn @ [0, 1, 0])[1] < -0.7  # up is up in the picture
        seen = camera.turn @ (body.head.place if portrait else body.pelvis.place) + camera.place
        assert seen[2] > 0.5
        x, y, _ = camera.intrinsics @ (seen / seen[2])
        assert 0 < x < width
        assert -0.1 * height < y < 1.1 * height


def test_the_focal_length_is_within_what_is_asked_for() -> None:
    def focal(key: int, config: PeopleConfig) -> float:
        rng = generator(key)
        pose, kind = sample_pose(rng)
        look = sample_look(rng, config, Materials(), kind)
        camera = sample_camera(rng, config, [stand(look, pose, (0.0, 0.0), 0.0)], [look], False)
        return float(camera.intrinsics[0, 0] / config.size[0])

    drawn = [focal(key, PeopleConfig()) for key in range(20)]
    assert 0.9 <= min(drawn) < 1.3 < 1.8 < max(drawn) <= 2.6
    assert [focal(key, PeopleConfig(focal=(1.5, 1.5))) for key in range(5)] == pytest.approx([1.5] * 5)
    with pytest.raises(ValueError, match="give shortest <= longest"):
        PeopleConfig(focal=(2.0, 1.0))


def test_feet_stand_on_the_floor() -> None:
    for key in range(20):
        rng = generator(key)
        pose, kind = sample_pose(rng)
        look = sample_look(rng, PeopleConfig(), Materials(), kind)
        body = stand(look, pose, (0.4, -0.7), 1.0)
        soles = np.concatenate([side.foot.at([(0, -0.085, -0.05), (0, -0.085, 0.14)])[:, 1] for side in body.sides])
        assert soles.min() == pytest.approx(0, abs=1e-9)
        assert body.pelvis.place[[0, 2]] == pytest.approx([0.4, -0.7])


def test_people_stand_apart_and_face_the_camera_as_often_as_asked() -> None:
    for portrait in (False, True):
        places = np.array(sample_grounds(generator(1), 4, portrait))
        assert places.shape == (4, 2)
        assert (places[0] == 0).all()
        assert np.diff(np.sort(places[:, 0])).min() > 0.1
    rng = generator(2)
    assert all(abs(sample_yaw(rng, 1.0)) <= np.radians(70) for _ in range(200))
    assert any(abs(sample_yaw(rng, 0.0)) > 2 for _ in range(50))
