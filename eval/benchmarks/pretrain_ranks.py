"""Steps of pretraining without a loader, timed in processes of their own: plain torch, or ZeRO-3 over gloo.

Processes are forked from a server that has imported everything and computed nothing: DeepSpeed takes longer to import
than the steps take.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import queue
import socket
import statistics
import time
import warnings
from typing import Any

import torch

from eval.benchmarks.common import Rate
from training.engine.parallel import Parallel
from training.objectives.masks import visible_count
from training.pretraining.config import PretrainConfig
from training.pretraining.model import Inputs

PLAIN = 0
"""In place of a number of ZeRO-3 processes: one process of plain torch."""


def small_config(**sections: Any) -> PretrainConfig:
    """The joint objective of a small model in float32, 8 pictures of 128 x 96 a step; `sections` replaces values."""
    base: dict[str, dict[str, Any]] = {
        "model": {
            "backbone": "tiny",
            "overrides": {"width": 128, "depth": 4, "heads": 4},
            "decoder_width": 64,
            "decoder_depth": 2,
            "decoder_heads": 4,
            "projection_hidden": 256,
            "projection_bottleneck": 64,
            "prototypes": 1024,
        },
        "views": {"global_size": (128, 96), "local_size": (64, 48)},
        "optimiser": {"warmup": 0},
        "koleo": {"group": 2},
        "batch": {"size": 8, "micro": 8},
        "engine": {"kind": "single", "precision": "float32"},
    }
    merged = {name: base.get(name, {}) | sections.get(name, {}) for name in base.keys() | sections.keys()}
    merged["model"]["overrides"] = base["model"]["overrides"] | sections.get("model", {}).get("overrides", {})
    return PretrainConfig.model_validate({"steps": 1000} | merged)


def random_inputs(config: PretrainConfig, rank: int = 0) -> Inputs:
    """Noise in the shape of a micro-batch."""
    draw = torch.Generator().manual_seed(rank)
    views, samples = config.views, config.batch.micro
    rows, columns = config.model.backbone_config().grid_of(*views.global_size)
    tokens = rows * columns
    keep = torch.rand(views.global_count, samples, tokens, generator=draw).argsort(-1)
    return Inputs(
        torch.randn(views.global_count, samples, 3, *views.global_size, generator=draw),
        torch.randn(views.local_count, samples, 3, *views.local_size, generator=draw),
        keep[..., : visible_count(tokens, config.mask.ratio)].sort(-1).values,
    )


class Stepper:
    """Steps a model on the same inputs."""

    def __init__(self, config: PretrainConfig, parallel: Parallel) -> None:
        self.config, self.parallel = config, parallel
        self._inputs = random_inputs(config, parallel.rank)
        self._centre = torch.zeros(config.model.prototypes)
        self._accumulation = config.batch.size // (config.batch.micro * parallel.world)

    def step(self) -> None:
        """One optimizer step of a whole batch."""
        for micro in range(self._accumulation):
            self.parallel.micro_step(self._inputs, 0.07, self._centre, last=micro == self._accumulation - 1)
        self.parallel.step(1e-4, 1e-4, 0.99, lambda norm: True)

    def rate(self, steps: int) -> Rate:
        """Images a second, of the whole batch; the median step counts. CPU time is that of all ranks."""
        times, cpu = [], time.process_time()
        for _ in range(steps):
            started = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - started)
        used = float(self.parallel.all_reduce(torch.tensor([time.process_time() - cpu])))
        return Rate(self.config.batch.size * steps, statistics.median(times) * steps, used)


def measure(config: PretrainConfig, processes: int, steps: int) -> Rate:
    """Time steps in one process of plain torch (`PLAIN`), or in some of ZeRO-3; one thread each.

    Args:
        config: batch.size divides among the processes; batch.micro is replaced by each one's share.
        processes: `PLAIN`, or how many ranks.
        steps: that are timed, after one that is not.
    """
    world = max(1, processes)
    size = config.batch.size
    if size % world:
        raise ValueError(f"batch.size {size} does not divide among {world} processes")
    settings = config.model_dump(mode="json") | {"batch": {"size": size, "micro": size // world}}
    context = mp.get_context("forkserver")
    context.set_forkserver_preload([__name__, "deepspeed"])
    os.environ["DS_ACCELERATOR"] = "cpu"  # read by the server when it starts
    results = context.Queue()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    workers = [
        context.Process(target=_work, args=(settings, processes, rank, port, steps, results)) for rank in range(world)
    ]
    for worker in workers:
        worker.start()
    answer: Rate | None = None
    while answer is None:
        try:
            answer = results.get(timeout=0.2)
        except queue.Empty:
            if any(worker.exitcode for worker in workers):
                for worker in workers:
                    worker.terminate()
                raise RuntimeError("a process of the benchmark died; its error is above") from None
    for worker in workers:
        worker.join()
    return answer


def _work(settings: dict[str, Any], processes: int, rank: int, port: str, steps: int, results: Any) -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=FutureWarning)  # DeepSpeed's, of torch.distributed
    parallel: Parallel
    config = PretrainConfig.model_validate(settings)
    if processes == PLAIN:
        from training.engine.single import SingleProcess

        parallel = SingleProcess(config)
    else:
        import deepspeed
        import torch.distributed as dist

        from training.engine.zero import ZeroThree

        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(processes))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        # Plain gloo, as training does; the compiled collectives take half a minute to build.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        dist.init_process_group("gloo")
        parallel = ZeroThree(config)
    stepper = Stepper(config, parallel)
    stepper.step()
    parallel.barrier()
    rate = stepper.rate(steps)
    parallel.barrier()
    if rank == 0:
        results.put(rate)
    parallel.close()
    if processes != PLAIN:
        dist.destroy_process_group()
