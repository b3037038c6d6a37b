"""Training under DeepSpeed ZeRO-3: parameters, gradients and optimizer state are divided among the ranks.

Student and teacher are constructed partitioned, in one module and so in the same way: the moving average needs no
communication, because a rank holds the same part of both. The teacher's masters are float32; what its forward pass
gathers is a copy of them in the precision of arithmetic.

What has to be minded (DeepSpeed 0.19, found here):

- Small parameters may be kept whole on every rank ("persistent"). Writing to a shard then changes nothing that a
  forward pass reads, and an average written there is silently lost. So none is kept.
- AdamW's state comes into being at the first step: it is made before, or there would be nothing to resume into.
- A gradient that is not finite makes DeepSpeed skip the step, silently. `step` asks before.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

from training.engine.config import TrainConfig
from training.engine.parallel import Accept, Parallel, StepResult
from training.engine.shards import Piece, own_part
from training.engine.trainable import set_rates
from training.objectives.ema import update_ema

_HOOK = "_overflow_check_and_loss_scale_update"


def deepspeed_config(config: TrainConfig, world: int) -> dict[str, Any]:
    """DeepSpeed's settings for a run on `world` ranks."""
    engine = config.engine
    zero: dict[str, Any] = {"stage": 3, "stage3_param_persistence_threshold": 0}
    if engine.offload != "none":
        zero["offload_optimizer"] = {"device": engine.offload, "pin_memory": engine.use_gpu}
        if engine.offload == "nvme":
            zero["offload_optimizer"]["nvme_path"] = engine.offload_path
    settings: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": config.batch.micro,
        "gradient_accumulation_steps": config.batch.size // (config.batch.micro * world),
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 10**9,
        "bf16": {"enabled": engine.precision == "bfloat16"},
        # Gradients are added up over micro-batches and ranks in float32.
        "data_types": {"grad_accum_dtype": "fp32"},
        "communication_data_type": "fp32",
    }
    if config.optimiser.clip_norm is not None:
        settings["gradient_clipping"] = config.optimiser.clip_norm
    return settings


class ZeroThree(Parallel):
    """DeepSpeed ZeRO-3 over the ranks of the default process group, which has to be initialised (gloo or nccl)."""

    def __init__(self, config: TrainConfig, device: torch.device | None = None) -> None:
        if not config.engine.use_gpu:
            os.environ["DS_ACCELERATOR"] = "cpu"
        import deepspeed

        if not config.engine.use_gpu:
            # Plain gloo: DeepSpeed's own collectives for CPUs need a compiler, and half a minute of it.
            deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.dtype = torch.bfloat16 if config.engine.precision == "bfloat16" else torch.float32
        if device is None:
            device = torch.device("cuda", torch.cuda.current_device()) if config.engine.use_gpu else torch.device("cpu")
        self.device = device
        self._offloaded = config.engine.offload != "none"
        settings = deepspeed_config(config, self.world)
        deepspeed.init_distributed(dist_backend=dist.get_backend())
        torch.manual_seed(config.seed)
        with deepspeed.zero.Init(config_dict_or_path=settings):
            self.model = config.build_model()
        self.model.dtype = self.dtype
        self.model.all_reduce, self.model.gather_rows = self.all_reduce, self.gather_rows
        self.model.all_reduce_max = self.all_reduce_max
        self.model.load_initial_weights(partial(deepspeed.zero.GatheredParameters, modifier_rank=0))
        # DeepSpeed adds attributes to parameters, of which their type knows nothing.
        self._pairs: list[tuple[str, Any, Any]] = list(self.model.teacher_pairs())
        optimizer = _adamw(config, self.model.parameter_groups(config.optimiser))
        self._engine, self._zero, *_ = deepspeed.initialize(model=self.model, optimizer=optimizer, config=settings)
        if not hasattr(self._zero, _HOOK) or not hasattr(self._zero, "fp32_partitioned_groups_flat"):
            raise RuntimeError(
                f"DeepSpeed {deepspeed.__version__} has no ZeRO-3 optimizer of the kind that this code steps; install "
                "deepspeed 0.19"
            )
        self._refused = False
        self._zero_check = getattr(self._zero, _HOOK)
        setattr(self._zero, _HOOK, self._check_gradient)
        self._accept: Accept = lambda norm: True
        self._norm = 0.0
        self._make_state()
        if config.engine.compile:
            self.model.compile_blocks()
        # The teacher's own masters; in float32 they are what its forward pass gathers.
        self._masters = [teacher.ds_tensor.data.float() for _, teacher, _ in self._pairs]
        if self._pairs:
            update_ema(self._masters, self._student_masters(), 0.0)
        self.refresh()

    # Training ---------------------------------------------------------------------------------------------------------

    def micro_step(self, *inputs: Any, last: bool) -> Any:
        output = self._engine(*inputs)
        with self.model.part("backward"):
            self._engine.backward(output.loss)
            if not last:
                self._engine.step()  # counts the micro-batch
        return output

    def step(self, lr: float, head_lr: float, momentum: float, accept: Accept) -> StepResult:
        set_rates(self._zero.param_groups, lr, head_lr)
        self._accept = accept
        self._engine.step()
        if self._refused:
            return StepResult(self._norm, False)
        if self._pairs:
            update_ema(self._masters, self._student_masters(), momentum)
            self._copy_teacher()
        return StepResult(self._norm, True)

    def _check_gradient(self, update_scale: bool = True) -> bool:
        """Stands in for DeepSpeed's own check inside its step: what it refuses, DeepSpeed cleans up after."""
        from deepspeed.runtime.zero.stage3 import combine_grad_norm_groups

        norm = combine_grad_norm_groups(self._zero._get_norm_groups())
        # DeepSpeed says -1 for a norm that is not finite.
        self._norm = float(norm) if float(norm) >= 0 else float("nan")
        self._refused = not self._accept(self._norm)
        self._zero.overflow = self._refused
        return self._refused

    def _student_masters(self) -> list[Tensor]:
        from deepspeed.utils import safe_get_local_fp32_param

        return [safe_get_local_fp32_param(student) for _, _, student in self._pairs]

    def _copy_teacher(self) -> None:
        for master, (_, teacher, _) in zip(self._masters, self._pairs, strict=True):
            if teacher.ds_tensor.data_ptr() != master.data_ptr():
                teacher.ds_tensor.data.copy_(master)

    # State ------------------------------------------------------------------------------------------------------------

    def pieces(self) -> list[Piece]:
        found = []
        for name, parameter in self.model.student.named_parameters():
            kinds = ("student", "exp_avg", "exp_avg_sq") if parameter.requires_grad else ("student",)
            found += [self._piece(f"{kind}/{name}", parameter, kind) for kind in kinds]
        for (name, teacher, _), master in zip(self._pairs, self._masters, strict=True):
            start, stop = own_part(teacher.ds_numel, teacher.ds_tensor.numel(), self.rank)
            own = master[: stop - start]
            shape = tuple(teacher.ds_shape)
            found.append(Piece(f"teacher/{name}", shape, start, stop, partial(_itself, own), own.copy_))
        return found

    def _piece(self, name: str, parameter: Any, kind: str) -> Piece:
        from deepspeed import utils

        start, stop = own_part(parameter.ds_numel, parameter.ds_tensor.numel(), self.rank)

        def whole() -> Tensor:
            if not parameter.requires_grad:
                return cast("Tensor", parameter.ds_tensor.data.float())
            if kind == "student":
                values: Tensor = utils.safe_get_local_fp32_param(parameter)
            else:
                values = utils.safe_get_local_optimizer_state(parameter, kind)
            return values

        def write(values: Tensor) -> None:
            padded = whole().clone()
            padded[: stop - start] = values
            if not parameter.requires_grad:
                parameter.ds_tensor.data.copy_(padded)
            elif kind == "student":
                utils.safe_set_local_fp32_param(parameter, padded)
                parameter.ds_tensor.data.copy_(padded)
            else:
                utils.safe_set_local_optimizer_state(parameter, padded, kind)

        return Piece(name, tuple(parameter.ds_shape), start, stop, lambda: whole()[: stop - start], write)

    def refresh(self) -> None:
        self._copy_teacher()

    def _make_state(self) -> None:
        for flat in self._zero.fp32_partitioned_groups_flat:
            state = self._zero.optimizer.state[flat]
            if not state:
                counter = torch.zeros((), device=flat.device if self.device.type == "cuda" else None)
                state["step"] = 0 if self._offloaded else counter
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(flat), torch.zeros_like(flat)

    def adam_step(self) -> int:
        states = [self._zero.optimizer.state[flat] for flat in self._zero.fp32_partitioned_groups_flat]
        return int(states[0]["step"])

    def set_adam_step(self, value: int) -> None:
        for flat in self._zero.fp32_partitioned_groups_flat:
            state = self._zero.optimizer.state[flat]
            state["step"] = torch.full_like(state["step"], value) if isinstance(state["step"], Tensor) else value

    # Ranks ------------------------------------------------------------------------------------------------------------

    def all_reduce(self, tensor: Tensor) -> Tensor:
        dist.all_reduce(tensor)
        return tensor

    def all_reduce_max(self, tensor: Tensor) -> Tensor:
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return tensor

    def gather_rows(self, rows: Tensor) -> Tensor:
        gathered = [torch.empty_like(rows) for _ in range(self.world)]
        dist.all_gather(gathered, rows.detach().contiguous())
        # The value of this rank's rows, and R times their gradient: DeepSpeed averages gradients over ranks.
        gathered[self.rank] = rows + (self.world - 1) * (rows - rows.detach())
        return torch.cat(gathered)

    def gather_objects(self, value: Any) -> list[Any]:
        found: list[Any] = [None] * self.world
        dist.all_gather_object(found, value)
        return found

    def barrier(self) -> None:
        dist.barrier()

    def close(self) -> None:
        self._engine.destroy()


def _itself(tensor: Tensor) -> Tensor:
    return tensor


def _adamw(config: TrainConfig, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    optimiser = config.optimiser
    if config.engine.offload == "none":
        return torch.optim.AdamW(
            groups, lr=0.0, betas=optimiser.betas, eps=optimiser.eps, fused=config.engine.use_gpu or None
        )
    from deepspeed.ops.adam import DeepSpeedCPUAdam  # compiled on first use

    adam: torch.optim.Optimizer = DeepSpeedCPUAdam(
        groups, lr=0.0, betas=optimiser.betas, eps=optimiser.eps, adamw_mode=True
    )
    return adam
