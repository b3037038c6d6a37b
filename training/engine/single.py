"""Training in this process with plain torch: for debugging, for small models, and as the reference for ZeRO-3.

Arithmetic in bfloat16 is autocast over float32 parameters here, and bfloat16 parameters with float32 masters under
ZeRO-3; in float32 both compute the same up to the order of sums.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from training.engine.config import TrainConfig
from training.engine.parallel import Accept, Parallel, StepResult, clip_factor
from training.engine.shards import Piece, whole_piece
from training.engine.trainable import set_rates
from training.objectives.ema import update_ema


class SingleProcess(Parallel):
    """Plain torch.

    Args:
        config: of the run.
        device: None = the first GPU where engine.use_gpu is set, else the CPU.
    """

    def __init__(self, config: TrainConfig, device: torch.device | None = None) -> None:
        self.device = device or torch.device("cuda" if config.engine.use_gpu else "cpu")
        self.dtype = torch.float32
        self._autocast = config.engine.precision == "bfloat16"
        self._clip = config.optimiser.clip_norm
        self._micro_steps = config.batch.size // config.batch.micro
        torch.manual_seed(config.seed)
        self.model = config.build_model().to(self.device)
        self.model.load_initial_weights()
        self._pairs = self.model.teacher_pairs()
        with torch.no_grad():
            for _, teacher, student in self._pairs:
                teacher.copy_(student)
        if config.engine.compile:
            self.model.compile_blocks()
        optimiser = config.optimiser
        groups = self.model.parameter_groups(optimiser)
        fused = self.device.type == "cuda"
        self._optimizer = torch.optim.AdamW(
            groups, lr=0.0, betas=optimiser.betas, eps=optimiser.eps, fused=fused or None
        )
        self._parameters = [parameter for group in groups for parameter in group["params"]]
        for parameter in self._parameters:
            self._optimizer.state[parameter] = {
                "step": torch.zeros((), device=self.device if fused else None),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    def micro_step(self, *inputs: Any, last: bool) -> Any:
        context: AbstractContextManager[object] = nullcontext()
        if self._autocast:
            context = torch.autocast(self.device.type, torch.bfloat16)
        with context:
            output = self.model(*inputs)
        with self.model.part("backward"):
            (output.loss / self._micro_steps).backward()
        return output

    def step(self, lr: float, head_lr: float, momentum: float, accept: Accept) -> StepResult:
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        norm = float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients])))
        if not accept(norm):
            self._optimizer.zero_grad(set_to_none=True)
            return StepResult(norm, False)
        factor = clip_factor(norm, self._clip)
        if factor < 1:
            torch._foreach_mul_(gradients, factor)
        set_rates(self._optimizer.param_groups, lr, head_lr)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        if self._pairs:
            update_ema([t.data for _, t, _ in self._pairs], [s.data for _, _, s in self._pairs], momentum)
        return StepResult(norm, True)

    def pieces(self) -> list[Piece]:
        found = []
        for name, parameter in self.model.student.named_parameters():
            found.append(whole_piece(f"student/{name}", parameter))
            state = self._optimizer.state[parameter]
            if not state:
                continue  # frozen
            found += [whole_piece(f"{moment}/{name}", state[moment]) for moment in ("exp_avg", "exp_avg_sq")]
        found += [whole_piece(f"teacher/{name}", teacher) for name, teacher, _ in self._pairs]
        return found

    def refresh(self) -> None:
        """Nothing: the pieces are the weights."""

    def adam_step(self) -> int:
        return int(self._optimizer.state[self._parameters[0]]["step"])

    def set_adam_step(self, value: int) -> None:
        for parameter in self._parameters:
            self._optimizer.state[parameter]["step"].fill_(value)
