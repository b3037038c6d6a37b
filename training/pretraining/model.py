"""The networks of pretraining, and the loss of one micro-batch.

The student encodes the visible tokens of every global view once; that pass serves both the decoder, which reconstructs
the masked ones, and the [CLS] head. It encodes the local views whole. The teacher encodes the global views whole,
without gradient. (Sapiens2 paper, 3.2 and A.1; that one masked pass serves both losses is read from the authors' figure
and A.1.2.)

Student and teacher are one module, so that DeepSpeed partitions both alike; the teacher's parameters take no gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from training.data.batch import Batch
from training.data.colour import normalise
from training.data.views import finish_on_device
from training.engine.trainable import Trainable
from training.models.backbone import Backbone
from training.models.checkpoints import Gather, load_weights
from training.models.decoder import PretrainDecoder, masked_positions
from training.models.layers import Device
from training.models.param_groups import param_groups
from training.models.projection import ProjectionHead
from training.objectives.distillation import (
    centred_softmax,
    distillation_loss,
    patch_distillation_loss,
    sinkhorn_knopp,
)
from training.objectives.koleo import koleo_loss
from training.objectives.reconstruction import reconstruction_loss, target_patches

if TYPE_CHECKING:
    from training.engine.config import OptimiserConfig
    from training.pretraining.config import PretrainConfig


class Inputs(NamedTuple):
    """A micro-batch on the device, ready to be encoded.

    Attributes:
        globals_: float32 [V, m, 3, H, W], normalised.
        locals_: float32 [L, m, 3, h, w], normalised; None where no loss uses them.
        keep: int64 [V, m, K], visible tokens.
    """

    globals_: Tensor
    locals_: Tensor | None
    keep: Tensor


class Output(NamedTuple):
    """What a micro-batch gives. (DeepSpeed looks for tensors in tuples, not in dataclasses.)

    Attributes:
        loss: scalar, what is minimised; its gradient averaged over micro-batches and ranks is the step's.
        terms: float32 [len(PretrainModel.terms)], the loss terms before their weights, detached.
        centre_sum: float32 [prototypes], sum of the teacher's logits over its V * m rows; None without distillation.
        cls: [V, m, D], the student's [CLS] of the global views, detached: for the collapse checks.
        teacher: [V, m, P], the teacher's probabilities; None without distillation.
        predicted: [V * m, N - K, outputs], the decoder's prediction, detached; None without reconstruction.
    """

    loss: Tensor
    terms: Tensor
    centre_sum: Tensor | None
    cls: Tensor
    teacher: Tensor | None
    predicted: Tensor | None


class Student(nn.Module):
    """What is trained. `projection` and `decoder` are there only where their loss has a weight."""

    def __init__(self, config: PretrainConfig, device: Device = None) -> None:
        super().__init__()
        self.backbone = Backbone(config.model.backbone_config(), device=device)
        self.decoder = (
            PretrainDecoder(config.model.decoder_config(), device=device) if config.trains_reconstruction else None
        )
        head = config.model.projection_config
        self.projection = ProjectionHead(head(), device=device) if config.trains_distillation else None
        self.patch_projection = ProjectionHead(head(), device=device) if config.trains_patches else None


class Teacher(nn.Module):
    """The moving average of the student's encoder and heads; the decoder has none."""

    def __init__(self, config: PretrainConfig, device: Device = None) -> None:
        super().__init__()
        self.backbone = Backbone(config.model.backbone_config(), device=device)
        head = config.model.projection_config
        self.projection = ProjectionHead(head(), device=device) if config.trains_distillation else None
        self.patch_projection = ProjectionHead(head(), device=device) if config.trains_patches else None


class PretrainModel(Trainable):
    """Student, teacher, and the losses that tie them.

    The teacher starts with random weights of its own: whoever constructs the model copies the student's into it
    (`teacher_pairs`), which under ZeRO-3 has to be done shard by shard.

    Attributes:
        terms: names of the loss terms that are trained.
    """

    student: Student

    def __init__(self, config: PretrainConfig, device: Device = None) -> None:
        super().__init__()
        self.config = config
        self.student = Student(config, device)
        self.teacher = Teacher(config, device)
        self.teacher.requires_grad_(False)
        if config.engine.activation_checkpointing:
            self.student.backbone.set_activation_checkpointing("blocks")
            if self.student.decoder is not None:
                self.student.decoder.set_activation_checkpointing("blocks")
        self.terms = tuple(
            name
            for name, used in (
                ("reconstruction", config.trains_reconstruction),
                ("distillation", config.trains_distillation),
                ("patch_distillation", config.trains_patches),
                ("koleo", config.koleo.weight > 0),
            )
            if used
        )

    def compile_blocks(self) -> None:
        """Have the encoders' blocks compiled at their first call, in place: names of parameters stay.

        After construction, since torch.compile cannot be imported inside of DeepSpeed's `zero.Init`.
        """
        for network in (self.student, self.teacher):
            for block in network.backbone.blocks:
                block.compile()

    def weights(self) -> tuple[float, ...]:
        """The factor of every term in the loss, in the order of `terms`."""
        config = self.config
        of = {
            "reconstruction": config.reconstruction.weight,
            "distillation": config.distillation.weight,
            "patch_distillation": config.distillation.weight * config.distillation.patch_weight,
            "koleo": config.koleo.weight,
        }
        return tuple(of[name] for name in self.terms)

    def teacher_pairs(self) -> list[tuple[str, nn.Parameter, nn.Parameter]]:
        """(name inside the teacher, teacher's parameter, student's) of everything that is averaged."""
        student = dict(self.student.named_parameters())
        return [(name, parameter, student[name]) for name, parameter in self.teacher.named_parameters()]

    def prepare(self, batch: Batch) -> Inputs:
        """A micro-batch on its device, normalised, with the views first; colour is applied if the workers left it."""
        with torch.no_grad():
            batch = finish_on_device(batch, self.config.views)
            globals_ = normalise(batch.global_views.transpose(0, 1))
            locals_ = normalise(batch.local_views.transpose(0, 1)) if self.config.uses_locals else None
            return Inputs(globals_, locals_, batch.keep.transpose(0, 1).contiguous())

    def parameter_groups(self, optimiser: OptimiserConfig) -> list[dict[str, Any]]:
        """Decayed or not, and the prototypes apart (`"head": True`).

        No decay on norms, biases, tokens and position embeddings (Sapiens2 paper, A.1.1).
        """
        names = {id(parameter): name for name, parameter in self.student.named_parameters()}
        groups: list[dict[str, Any]] = []
        for group in param_groups(self.student, lr=0.0, weight_decay=optimiser.weight_decay, decay_tokens=False):
            for head in (False, True):
                chosen = [p for p in group["params"] if names[id(p)].endswith("projection.last_layer.weight") is head]
                if chosen:
                    groups.append({"params": chosen, "lr": 0.0, "weight_decay": group["weight_decay"], "head": head})
        return groups

    def load_initial_weights(self, gather: Gather | None = None) -> None:
        """Fill the student's encoder from `model.initial_weights`; decoder and heads start anew.

        Raises:
            WeightsError: the file is not readable as weights, or of another backbone.
        """
        path = self.config.model.initial_weights
        if path is not None:
            load_weights(self.student.backbone, path, gather=gather)

    def forward(self, views: Inputs, teacher_temperature: float, centre: Tensor | None) -> Output:
        """The loss of a micro-batch.

        Args:
            views: see `prepare`.
            teacher_temperature: of this step.
            centre: float32 [prototypes], what the teacher's logits are centred by; used with `moving_average`.
        """
        config = self.config
        count, samples = views.globals_.shape[:2]
        pixels = views.globals_.flatten(0, 1)
        images = pixels.to(self.dtype)
        keep = views.keep.flatten(0, 1)
        with self.part("student"):
            (encoded,) = self.student.backbone(images, keep=keep)
            cls = encoded[:, 0].unflatten(0, (count, samples))
        values: dict[str, Tensor] = {}
        predicted = None
        if self.student.decoder is not None:
            with self.part("decoder"):
                predicted, values["reconstruction"] = self._reconstruct(pixels, encoded, keep)
        centre_sum = probabilities = None
        if self.student.projection is not None:
            with self.part("teacher"), torch.no_grad():
                logits, patch_logits = self._teach(images, keep)
                centre_sum = logits.flatten(0, 1).float().sum(0)
                probabilities = self._targets(logits, teacher_temperature, centre)
            with self.part("student"):
                values["distillation"] = self._distil(cls, views, probabilities)
            if self.student.patch_projection is not None and patch_logits is not None:
                seen = encoded[:, self.student.backbone.config.front_tokens :]
                with torch.no_grad():
                    # Always by Sinkhorn-Knopp, as DINOv3 does for its patches: the centre is that of [CLS] logits.
                    targets = self._balanced(patch_logits, teacher_temperature)
                patches = self.student.patch_projection(seen.flatten(0, 1)).unflatten(0, seen.shape[:2])
                values["patch_distillation"] = patch_distillation_loss(
                    patches, targets, config.distillation.student_temperature
                )
        if config.koleo.weight > 0:
            values["koleo"] = self._spread(cls)
        terms = torch.stack([values[name].float() for name in self.terms])
        loss = (terms * terms.new_tensor(self.weights())).sum()
        return Output(
            loss,
            terms.detach(),
            centre_sum,
            cls.detach(),
            probabilities,
            None if predicted is None else predicted.detach(),
        )

    def _reconstruct(self, pixels: Tensor, encoded: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        decoder = self.student.decoder
        assert decoder is not None
        grid = self.student.backbone.config.grid_of(*pixels.shape[-2:])
        predicted = decoder(encoded, keep, grid, masked_only=True)
        with torch.no_grad():
            settings = self.config.reconstruction
            target = target_patches(pixels, grid, decoder.config.pixels, normalise=settings.normalise, eps=settings.eps)
            masked = masked_positions(keep, grid[0] * grid[1])
            target = target.gather(1, masked[..., None].expand(-1, -1, target.shape[-1]))
        return predicted, reconstruction_loss(predicted, target)

    def _teach(self, images: Tensor, keep: Tensor) -> tuple[Tensor, Tensor | None]:
        """The teacher's logits: of [CLS], [V, m, P], and of the tokens that the student sees, [V * m, K, P]."""
        assert self.teacher.projection is not None
        (encoded,) = self.teacher.backbone(images)
        logits = self.teacher.projection(encoded[:, 0])
        patch_logits = None
        if self.teacher.patch_projection is not None:
            front = self.teacher.backbone.config.front_tokens
            rows = encoded[:, front:].gather(1, keep[..., None].expand(-1, -1, encoded.shape[-1]))
            patch_logits = self.teacher.patch_projection(rows.flatten(0, 1)).unflatten(0, rows.shape[:2])
        return logits.unflatten(0, (self.config.views.global_count, -1)), patch_logits

    def _targets(self, logits: Tensor, temperature: float, centre: Tensor | None) -> Tensor:
        if self.config.distillation.centring == "sinkhorn_knopp":
            return self._balanced(logits, temperature)
        if centre is None:
            raise ValueError("distillation.centring moving_average needs the centre of the step")
        return centred_softmax(logits, temperature, centre)

    def _balanced(self, logits: Tensor, temperature: float) -> Tensor:
        """[a, b, P] -> probabilities over P by Sinkhorn-Knopp, over all a * b rows of all ranks."""
        rows = logits.flatten(0, 1).float()
        balanced = sinkhorn_knopp(
            rows,
            temperature,
            self.config.distillation.sinkhorn_iterations,
            self.all_reduce,
            self.all_reduce_max,
        )
        return balanced.unflatten(0, logits.shape[:2])

    def _distil(self, cls: Tensor, views: Inputs, probabilities: Tensor) -> Tensor:
        assert self.student.projection is not None
        rows, samples = cls.flatten(0, 1), cls.shape[1]
        if views.locals_ is not None:
            (local,) = self.student.backbone(views.locals_.flatten(0, 1).to(self.dtype), out_type="cls")
            rows = torch.cat([rows, local])
        logits = self.student.projection(rows).unflatten(0, (-1, samples))
        return distillation_loss(logits, probabilities, self.config.distillation.student_temperature)

    def _spread(self, cls: Tensor) -> Tensor:
        """KoLeo of every global view apart, summed as DINOv3 does."""
        group, eps = self.config.koleo.group, self.config.koleo.eps
        # Groups inside of a micro-batch need nobody else.
        inside = self.gather_rows is None or cls.shape[1] % group == 0
        views = [view if inside or self.gather_rows is None else self.gather_rows(view) for view in cls]
        return torch.stack([koleo_loss(view, group, eps) for view in views]).sum()
