"""Ranks that take turns at the held-out pictures come to the figures of one."""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from tests.fixtures.finetuning import finetune_config
from training.finetuning.drawings import Drawings
from training.finetuning.measure import measured
from training.finetuning.model import FinetuneModel
from training.finetuning.pictures import open_pictures


class Ranks:
    """What ranks in threads of this process exchange."""

    def __init__(self, world: int) -> None:
        self.world, self.barrier = world, threading.Barrier(world, timeout=60)
        self.slots: list[Any] = [None] * world

    def rank(self, number: int) -> Any:
        ranks = self

        class Rank:
            rank, world, device = number, ranks.world, torch.device("cpu")

            def gather_objects(self, value: Any) -> list[Any]:
                ranks.slots[number] = copy.deepcopy(value)
                ranks.barrier.wait()
                found = list(ranks.slots)
                ranks.barrier.wait()
                return found

        return Rank()


@pytest.mark.parametrize("task", ["pose+seg"])
def test_the_figures_do_not_depend_on_the_number_of_ranks(task: str) -> None:
    """Five pictures of no, one or more people: ranks have other numbers of crops, and one has no picture in the end.

    The drawings of the first ones are those of one rank too, pixel by pixel.
    """
    config = finetune_config(task, data={"people": {"people": [0, 3]}})
    torch.manual_seed(0)
    model, pictures = FinetuneModel(config), open_pictures(config.data)[1]
    passes = []
    model.student.register_forward_hook(lambda *_: passes.append(threading.get_ident()))

    def measure(model: FinetuneModel, rank: Any) -> tuple[dict[str, float], Any]:
        drawings = Drawings(config.setup(), 4, 64)
        return measured(model, config.setup(), pictures, rank, drawings.add), drawings.gathered(rank)

    alone, drawn = measure(model, Ranks(1).rank(0))
    assert {"pose/ap", "seg/miou"} <= alone.keys()
    # Four rows of five panels, with lines of four pixels between them.
    assert drawn.shape == (4 * 64 + 3 * 4, 5 * 48 + 4 * 4, 3)
    for world in (2, 3):
        ranks = Ranks(world)
        passes.clear()
        with ThreadPoolExecutor(world) as pool:
            jobs = [pool.submit(measure, copy.deepcopy(model), ranks.rank(r)) for r in range(world)]
            results = [job.result() for job in jobs]
        for figures, _ in results:
            assert figures == pytest.approx(alone, nan_ok=True)
        assert np.array_equal(results[0][1], drawn)
        assert all(picture is None for _, picture in results[1:])
        # Under ZeRO-3 a pass needs every rank: all make as many.
        assert len({passes.count(thread) for thread in passes}) == 1


def test_each_task_has_the_figures_that_its_head_has_alone() -> None:
    config = finetune_config("pose+seg", data={"held_out": 3, "people": {"people": [0, 2]}})
    torch.manual_seed(0)
    model, pictures, rank = FinetuneModel(config), open_pictures(config.data)[1], Ranks(1).rank(0)
    together = measured(model, config.setup(), pictures, rank)
    for task in ("pose", "seg"):
        alone = FinetuneModel(finetune_config(task))
        alone.student.load_state_dict(model.student.single(task).state_dict())
        figures = measured(alone, alone.setup, pictures, rank)
        mine = {name: value for name, value in together.items() if name.startswith(f"{task}/")}
        assert mine == pytest.approx({f"{task}/{name}": value for name, value in figures.items()}, nan_ok=True)


def test_the_model_is_measured_in_evaluation_and_trains_on() -> None:
    config = finetune_config("normal")
    model = FinetuneModel(config)
    model.train()
    modes = []
    model.student.register_forward_hook(lambda module, *_: modes.append((module.training, torch.is_grad_enabled())))
    measured(model, config.setup(), open_pictures(config.data)[1], Ranks(1).rank(0))
    assert set(modes) == {(False, False)}
    assert model.training
