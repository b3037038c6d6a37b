"""The mean predictor: fitted to training pictures, measured as a model is."""

from __future__ import annotations

import numpy as np
import pytest

from eval.baselines import mean_predictor_figures
from tests.fixtures import finetuning
from training.data.labelled import Picture
from training.data.people import PeopleConfig
from training.finetuning.config import FinetuneConfig
from training.finetuning.pictures import SyntheticPeople
from training.finetuning.tasks import TaskSetup

TASKS = ("pose", "seg", "normal", "pointmap", "albedo")
PEOPLE = PeopleConfig(size=(64, 48), people=(1, 1))
TRAIN, HELD_OUT = SyntheticPeople(PEOPLE, 0, 24), SyntheticPeople(PEOPLE, 2**40, 6)


class Few:
    """Some pictures."""

    fingerprint = ""

    def __init__(self, *pictures: Picture) -> None:
        self._pictures = pictures

    def __len__(self) -> int:
        return len(self._pictures)

    def __getitem__(self, index: int) -> Picture:
        return self._pictures[index]


def setup_of(task: str) -> TaskSetup:
    return FinetuneConfig.model_validate(finetuning.settings(task)).setup()


@pytest.mark.parametrize("task", TASKS)
def test_it_has_the_figures_of_a_model(task: str) -> None:
    """All that the task's metric computes, the figure that counts among them, and not a perfect one."""
    setup = setup_of(task)
    figures = mean_predictor_figures(setup, TRAIN, HELD_OUT, 24)
    assert np.isfinite(figures[setup.metric.primary])
    if setup.metric.higher:
        assert figures[setup.metric.primary] < 0.5
    else:
        assert figures[setup.metric.primary] > 0.01


@pytest.mark.parametrize("task", TASKS)
def test_the_mean_of_one_picture_is_that_picture(task: str) -> None:
    """What is fitted to the picture it is measured on makes hardly an error; a value for all places makes one."""
    setup, same = setup_of(task), Few(TRAIN[3])
    figures = {by_place: mean_predictor_figures(setup, same, same, 1, by_place) for by_place in (True, False)}
    good, poor = figures[True], figures[False]
    if task == "pose":
        assert (good["pck_box@0.05"], good["ap"]) == (1, pytest.approx(1))
        assert poor["pck_box@0.05"] < 0.5
    elif task == "seg":
        assert good["miou"] == 1
        assert poor["miou"] < 0.2
    else:
        # Every place borrows 4 pixels of the mean of all, and one of its own: a fifth of the way from it to the truth.
        primary = setup.metric.primary
        assert 0.6 * poor[primary] < good[primary] < 0.9 * poor[primary]


def test_only_the_first_pictures_are_fitted_to() -> None:
    setup = setup_of("albedo")
    few = mean_predictor_figures(setup, TRAIN, HELD_OUT, 2)
    assert few == mean_predictor_figures(setup, Few(TRAIN[0], TRAIN[1]), HELD_OUT, 99)
    assert few != mean_predictor_figures(setup, TRAIN, HELD_OUT, 3)


def test_nothing_to_fit_to_is_said() -> None:
    empty = SyntheticPeople(PeopleConfig(size=(64, 48), people=(0, 0)), 0, 2)
    for task in ("pose", "normal"):
        with pytest.raises(ValueError, match="no training picture that was read shows a person"):
            mean_predictor_figures(setup_of(task), empty, HELD_OUT, 2)
    with pytest.raises(ValueError, match="count is 0: give at least 1"):
        mean_predictor_figures(setup_of("seg"), TRAIN, HELD_OUT, 0)
