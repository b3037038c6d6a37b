"""The `finetune` section of a configuration.

Defaults are the released recipes' where they are alike for all tasks (facts: AdamW 5e-4, betas 0.9 and 0.999, weight
decay 0.1, 500 steps of warm-up from a thousandth, linear to 0, gradient norm 2); sizes differ in layer decay and steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from curation.config import Config
from training.engine.config import CheckpointConfig, OptimiserConfig, TrainConfig
from training.finetuning.pictures import DataConfig, LabelledConfig, SyntheticConfig
from training.models.config import BackboneConfig
from training.models.task_model import task_head_config
from training.models.zoo import backbone_of
from training.tasks.albedo import AlbedoConfig
from training.tasks.augment import RECIPES, AugmentConfig
from training.tasks.normal import NormalConfig
from training.tasks.pointmap import PointmapConfig
from training.tasks.pose import PoseConfig
from training.tasks.random_frames import PARTS_FRAMES, DenseFrameConfig
from training.tasks.segmentation import SegmentationConfig

if TYPE_CHECKING:
    from pipeline.storage import Storage
    from training.engine.journal import Report
    from training.engine.parallel import Parallel
    from training.engine.stop import StopSignal
    from training.finetuning.model import FinetuneModel
    from training.finetuning.tasks import Setup, TaskSetup
    from training.finetuning.trainer import FinetuneTrainer


class _TaskSection(Config):
    augmentation: AugmentConfig = Field(AugmentConfig(), description="null: the released recipe of the task")

    @model_validator(mode="before")
    @classmethod
    def _released(cls, values: Any) -> Any:
        """What is not given is the released recipe, and is shown as what it is."""
        if not isinstance(values, dict):
            return values
        given = {
            name: value for name, value in values.items() if value is not None or name not in ("augmentation", "frames")
        }
        return {"augmentation": RECIPES[cls.model_fields["kind"].default], **given}


class PoseSection(_TaskSection):
    """Keypoints of people in their boxes."""

    kind: Literal["pose"] = "pose"
    pose: PoseConfig = Field(default_factory=PoseConfig)


class SegSection(_TaskSection):
    """Body parts."""

    kind: Literal["seg"] = "seg"
    frames: DenseFrameConfig = Field(PARTS_FRAMES, description="null: the released recipe of body parts")
    seg: SegmentationConfig = Field(default_factory=SegmentationConfig)


class NormalSection(_TaskSection):
    """Surface normals."""

    kind: Literal["normal"] = "normal"
    frames: DenseFrameConfig = DenseFrameConfig()
    normal: NormalConfig = Field(default_factory=NormalConfig)


class PointmapSection(_TaskSection):
    """Points in metres."""

    kind: Literal["pointmap"] = "pointmap"
    frames: DenseFrameConfig = DenseFrameConfig()
    pointmap: PointmapConfig = Field(default_factory=PointmapConfig)


class AlbedoSection(_TaskSection):
    """Albedo."""

    kind: Literal["albedo"] = "albedo"
    frames: DenseFrameConfig = DenseFrameConfig()
    albedo: AlbedoConfig = Field(default_factory=AlbedoConfig)


SingleSection = Annotated[
    PoseSection | SegSection | NormalSection | PointmapSection | AlbedoSection, Field(discriminator="kind")
]


class MultiSection(Config):
    """Several tasks on one backbone: each place in the order gives a picture, of which each task makes its image."""

    kind: Literal["multi"] = "multi"
    tasks: list[SingleSection] = Field(
        min_length=2, max_length=5, description="different ones; the figure of the first chooses the best checkpoint"
    )
    weights: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict,
        description="factor on the loss of a task, by name, e.g. {pose: 2.0}; 1 where none is given",
    )

    @model_validator(mode="after")
    def _different_tasks(self) -> MultiSection:
        names = [section.kind for section in self.tasks]
        if len(set(names)) < len(names):
            raise ValueError(f"tasks are {', '.join(names)}: give each task once")
        unknown = sorted(self.weights.keys() - set(names))
        if unknown:
            raise ValueError(
                f"weights has {', '.join(unknown)}, and the tasks are {', '.join(names)}: give their names"
            )
        return self


Section = Annotated[
    PoseSection | SegSection | NormalSection | PointmapSection | AlbedoSection | MultiSection,
    Field(discriminator="kind"),
]


class FinetuneModelConfig(Config):
    """The network."""

    backbone: str = Field("tiny", description="a backbone of `populace models list` that has heads")
    overrides: dict[str, Any] = Field(
        default_factory=dict, description="other sizes of that backbone, e.g. {depth: 2}; for trials"
    )
    initial_weights: str | None = Field(
        None,
        description="a backbone (`populace export-weights`, or a released one), or a whole task model; null: random",
    )
    from_pretrain: bool = Field(
        False, description="begin with the teacher of the same run's `pretrain`, which has to be finished"
    )
    freeze_backbone: bool = Field(False, description="train the head only")
    head_start: Literal["random", "targets"] = Field(
        "random",
        description="of a new head's last layer: random weights and zero biases (released), or biases at the mean of "
        "the targets with small weights (ours: short runs learn hundreds of steps sooner)",
    )

    @model_validator(mode="after")
    def _one_beginning(self) -> FinetuneModelConfig:
        if self.from_pretrain and self.initial_weights is not None:
            raise ValueError("from_pretrain is true and initial_weights is given: give one of them")
        return self

    def backbone_config(self) -> BackboneConfig:
        """The encoder's sizes; ValueError as `backbone_of` says."""
        return backbone_of(self.backbone, self.overrides)


class FinetuneOptimiserConfig(OptimiserConfig):
    """AdamW with the released recipes' numbers."""

    lr: float = Field(5e-4, gt=0, description="peak learning rate; 5e-4: released (1e-4 for most tasks at 5B)")
    final_lr: float = Field(0.0, ge=0, description="at the end of the linear decay; 0: released")
    warmup: int = Field(500, ge=0, description="steps of linear warm-up from a thousandth of the peak; 500: released")
    betas: tuple[float, float] = Field((0.9, 0.999), description="released")
    weight_decay: float = Field(0.1, ge=0, description="of matrices; 0.1: released")
    clip_norm: float | None = Field(2.0, gt=0, description="global gradient norm; 2 or 4 by size: released")
    layer_decay: float = Field(
        0.8,
        gt=0,
        le=1,
        description="factor on the learning rate from a layer to the one before; released: 0.8 (0.4B), 0.85 (0.8B), "
        "0.9 (1B), 0.94 (5B)",
    )


class FinetuneCheckpointConfig(CheckpointConfig):
    """The task's metric is taken with every checkpoint."""

    keep_best: int = Field(1, ge=0, description="checkpoints with the best figures of the task's metric that are kept")


class FinetuneConfig(TrainConfig):
    """A fine-tuning run of a task, or of several on one backbone."""

    task: Section = Field(description="which task, and how")
    size: tuple[int, int] = Field(
        (1024, 768), description="height and width of what the model sees; released: 1024x768"
    )
    model: FinetuneModelConfig = FinetuneModelConfig()
    data: DataConfig = Field(SyntheticConfig(), description="pictures: people that are rendered, or your own")
    workers: int = Field(4, ge=0, description="processes of each rank that load; 0: the training process loads")
    optimiser: FinetuneOptimiserConfig = FinetuneOptimiserConfig()
    checkpoint: FinetuneCheckpointConfig = FinetuneCheckpointConfig()

    @model_validator(mode="after")
    def _fits_together(self) -> FinetuneConfig:
        backbone = self.model.backbone_config().replace(image_size=self.size)
        backbone.grid_of(*self.size)
        for section in self.sections:
            try:
                task_head_config(section.kind, self.model.backbone, backbone)
            except ValueError as error:
                raise ValueError(f"size {self.size[0]}x{self.size[1]} with task {section.kind}: {error}") from None
        self.engine.check_workers(self.batch.size, self.batch.micro)
        if self.optimiser.warmup >= self.steps and self.optimiser.warmup > 0:
            raise ValueError(
                f"optimiser.warmup is {self.optimiser.warmup} of {self.steps} steps: give fewer, e.g. a tenth"
            )
        return self

    @property
    def sections(self) -> list[SingleSection]:
        """Of each task."""
        return self.task.tasks if isinstance(self.task, MultiSection) else [self.task]

    def setup(self) -> Setup:
        """The task, or the tasks, for training and measuring."""
        from training.finetuning.multi import MultiSetup

        parts: dict[str, TaskSetup] = {section.kind: _setup_of(section, self.size) for section in self.sections}
        return MultiSetup(parts, self.task.weights) if isinstance(self.task, MultiSection) else parts[self.task.kind]

    def identity(self) -> dict[str, Any]:
        """What fixes the losses of a run: not workers, checkpoints, logs.

        The losses of normals, points and albedo are means over the pixels of people in a micro-batch (released), so
        that pictures that are alone or together weigh differently: there `batch.micro` is part of the run. (Micro-
        batches are the same pictures whatever the number of workers.) Of labelled pictures, the fingerprint of their
        files comes beside this (`pipeline.finetune`), so that folders may be moved.
        """
        dumped = self.model_dump(mode="json", exclude={"engine", "checkpoint", "watch", "workers"})
        if isinstance(self.data, LabelledConfig):
            dumped["data"] = self.data.identity()
        if all(isinstance(section, PoseSection | SegSection) for section in self.sections):
            del dumped["batch"]["micro"]
        dumped["precision"] = self.engine.precision
        return dumped

    def build_model(self) -> FinetuneModel:
        from training.finetuning.model import FinetuneModel

        return FinetuneModel(self)

    def make_trainer(
        self, storage: Storage, parallel: Parallel, stop: StopSignal, report: Report | None = None
    ) -> FinetuneTrainer:
        from training.finetuning.trainer import FinetuneTrainer

        return FinetuneTrainer(self, storage, parallel, stop, report)

    def check(self) -> None:
        """See that pictures can be used and have the labels of the task; DataError with the fix where not."""
        from training.finetuning.fit import checked_pictures

        checked_pictures(self.setup(), self.data)

    def resumed(self) -> FinetuneConfig:
        begun = {"initial_weights": None, "head_start": "random"}  # the checkpoint has it all
        return self.model_copy(update={"model": self.model.model_copy(update=begun)})


def _setup_of(section: SingleSection, size: tuple[int, int]) -> TaskSetup:
    from training.finetuning import tasks

    match section:
        case PoseSection():
            return tasks.PoseSetup(size, section.augmentation, section.pose)
        case SegSection():
            return tasks.SegmentationSetup(size, section.augmentation, section.frames, section.seg)
        case NormalSection():
            return tasks.NormalSetup(size, section.augmentation, section.frames, section.normal)
        case PointmapSection():
            return tasks.PointmapSetup(size, section.augmentation, section.frames, section.pointmap)
        case AlbedoSection():
            return tasks.AlbedoSetup(size, section.augmentation, section.frames, section.albedo)
