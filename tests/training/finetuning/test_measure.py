"""Ranks that take turns at the held-out pictures come to the figures of one."""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from tests.fixtures.finetuning import finetune_config
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


@pytest.mark.parametrize("task", ["pose", "seg"])
def test_the_figures_do_not_depend_on_the_number_of_ranks(task: str) -> None:
    """Five pictures of no, one or more people: ranks have other numbers of crops, and one has no picture in the end."""
    config = finetune_config(task, data={"people": {"people": [0, 3]}})
    torch.manual_seed(0)
    model, pictures = FinetuneModel(config), open_pictures(config.data)[1]
    passes = []
    model.student.register_forward_hook(lambda *_: passes.append(threading.get_ident()))
    alone = measured(model, config.setup(), pictures, Ranks(1).rank(0))
    for world in (2, 3):
        ranks = Ranks(world)
        passes.clear()
        with ThreadPoolExecutor(world) as pool:
            jobs = [
                pool.submit(measured, copy.deepcopy(model), config.setup(), pictures, ranks.rank(r))
                for r in range(world)
            ]
            results = [job.result() for job in jobs]
        for figures in results:
            assert figures == pytest.approx(alone, nan_ok=True)
        # Under ZeRO-3 a pass needs every rank: all make as many.
        assert len({passes.count(thread) for thread in passes}) == 1


def test_the_model_is_measured_in_evaluation_and_trains_on() -> None:
    config = finetune_config("normal")
    model = FinetuneModel(config)
    model.train()
    modes = []
    model.student.register_forward_hook(lambda module, *_: modes.append((module.training, torch.is_grad_enabled())))
    measured(model, config.setup(), open_pictures(config.data)[1], Ranks(1).rank(0))
    assert set(modes) == {(False, False)}
    assert model.training
