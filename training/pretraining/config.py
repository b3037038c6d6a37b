"""The `pretrain` section of a configuration.

Defaults are the published recipe of Sapiens2 (paper, A.1.1) where it states a value; the field says so. Everything that
a part needs is in that part's own class, beside its code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field, model_validator

from curation.config import Config
from training.data.config import DataConfig
from training.data.views import ViewsConfig
from training.engine.config import BatchConfig, CheckpointConfig, EngineConfig, OptimiserConfig, TrainConfig
from training.models.config import BackboneConfig
from training.models.decoder import DecoderConfig
from training.models.projection import ProjectionConfig
from training.models.zoo import backbone_of
from training.objectives.distillation import DistillationConfig
from training.objectives.ema import EmaConfig
from training.objectives.koleo import KoleoConfig
from training.objectives.masks import MaskConfig, visible_count
from training.objectives.reconstruction import ReconstructionConfig
from training.watch.config import WatchConfig

if TYPE_CHECKING:
    from pipeline.storage import Storage
    from training.engine.journal import Report
    from training.engine.parallel import Parallel
    from training.engine.stop import StopSignal
    from training.pretraining.model import PretrainModel
    from training.pretraining.trainer import Trainer


class ModelConfig(Config):
    """The networks."""

    backbone: str = Field("sapiens2_0.1b", description="a backbone of `populace models list`")
    overrides: dict[str, Any] = Field(
        default_factory=dict, description="other sizes of that backbone, e.g. {depth: 2}; for trials"
    )
    decoder_width: int = Field(512, ge=4, description="channels of the reconstruction decoder; 512: the paper")
    decoder_depth: int = Field(8, ge=1, description="blocks of the decoder; 8: the paper")
    decoder_heads: int = Field(16, ge=1, description="heads of the decoder; 16: MAE")
    decoder_pixels: int | None = Field(
        None,
        ge=1,
        description="side in pixels of what a token is decoded to; null: 16, and 32 for 4K models, which then "
        "reconstruct 2K pictures. 16 for a 4K model gives its 1K phase.",
    )
    projection_hidden: int = Field(2048, ge=1, description="inner channels of the [CLS] head; DINOv3's default")
    projection_bottleneck: int = Field(256, ge=1, description="channels before the prototypes; DINOv3's default")
    projection_layers: int = Field(3, ge=1, description="linear layers of the head's MLP; DINOv3's default")
    prototypes: int = Field(65_536, ge=2, description="outputs of the head; DINOv3's default, the paper is silent")
    prototypes_unit_length: bool = Field(
        False,
        description="bring the rows of the last layer to unit length, as DINO and DINOv2 do: logits are then cosines. "
        "DINOv3's last layer is plain",
    )
    initial_weights: str | None = Field(
        None,
        description="weights to start from instead of random ones (a safetensors file, or a folder of `populace "
        "export-weights`): continues pretraining on other data",
    )

    def backbone_config(self) -> BackboneConfig:
        """The encoder's sizes; ValueError as `backbone_of` says."""
        return backbone_of(self.backbone, self.overrides)

    def decoder_config(self) -> DecoderConfig:
        """The reconstruction decoder's sizes."""
        sizes: dict[str, Any] = {
            "width": self.decoder_width,
            "depth": self.decoder_depth,
            "heads": self.decoder_heads,
        }
        if self.decoder_pixels is not None:
            sizes["pixels"] = self.decoder_pixels
        return DecoderConfig.for_backbone(self.backbone_config(), **sizes)

    def projection_config(self) -> ProjectionConfig:
        """The [CLS] head's sizes."""
        return ProjectionConfig(
            self.backbone_config().width,
            hidden=self.projection_hidden,
            bottleneck=self.projection_bottleneck,
            layers=self.projection_layers,
            prototypes=self.prototypes,
            weight_norm=self.prototypes_unit_length,
        )


class PretrainOptimiserConfig(OptimiserConfig):
    """AdamW with the paper's numbers (A.1.1)."""

    freeze_last_layer: int = Field(
        0, ge=0, description="steps for which the prototypes stay as they start; DINOv3: 1 epoch of 1,250; paper silent"
    )


class PretrainConfig(TrainConfig):
    """A pretraining run."""

    seed: int = Field(0, ge=0, le=2**31 - 1, description="of weights, order, views and masks")
    steps: int = Field(500_000, ge=1, description="optimizer steps; 500,000: the paper")
    model: ModelConfig = ModelConfig()
    data: DataConfig = Field(default_factory=DataConfig)
    views: ViewsConfig = Field(default_factory=ViewsConfig)
    mask: MaskConfig = MaskConfig()
    reconstruction: ReconstructionConfig = ReconstructionConfig()
    distillation: DistillationConfig = DistillationConfig()
    koleo: KoleoConfig = KoleoConfig()
    ema: EmaConfig = EmaConfig()
    optimiser: PretrainOptimiserConfig = PretrainOptimiserConfig()
    batch: BatchConfig = BatchConfig()
    engine: EngineConfig = EngineConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    watch: WatchConfig = WatchConfig()

    @model_validator(mode="after")
    def _fits_together(self) -> PretrainConfig:
        backbone = self.model.backbone_config()
        self.model.decoder_config()
        self.model.projection_config()
        self.views.check_stride(backbone.stride)
        tokens = backbone.grid_of(*self.views.global_size)
        count = tokens[0] * tokens[1]
        if self.reconstruction.weight > 0 and visible_count(count, self.mask.ratio) >= count:
            raise ValueError(
                f"reconstruction.weight is {self.reconstruction.weight}, but mask.ratio {self.mask.ratio} masks none "
                f"of the {count} tokens: give a ratio that masks some, or weight 0"
            )
        if not self.trains_reconstruction and not self.trains_distillation and self.koleo.weight == 0:
            raise ValueError(
                "the weights of reconstruction, distillation and koleo are all 0: nothing would be trained"
            )
        if self.trains_distillation and self.views.global_count + self.views.local_count < 2:
            raise ValueError("distillation compares different views: give at least 2 views, or distillation.weight 0")
        self.engine.check_workers(self.batch.size, self.batch.micro)
        self._check_groups()
        if self.optimiser.warmup >= self.steps and self.optimiser.warmup > 0:
            raise ValueError(
                f"optimiser.warmup is {self.optimiser.warmup} of {self.steps} steps: the learning rate would never "
                "reach its peak. Give fewer, e.g. a tenth of the steps."
            )
        return self

    def _check_groups(self) -> None:
        """Groups of KoLeo are whole; workers come and go only where no loss looks at more than a micro-batch."""
        engine, micro, group = self.engine, self.batch.micro, self.koleo.group
        fewest = engine.min_workers or engine.workers
        if self.koleo.weight > 0 and any(count * micro % group for count in range(fewest, engine.workers + 1)):
            raise ValueError(
                f"koleo.group {group} divides neither batch.micro {micro} nor the pictures of all workers at a time: "
                "give a group that divides batch.micro (then the loss is the same for any number of workers)"
            )
        if self.rows_at_a_time is not None and fewest != engine.workers:
            raise ValueError(
                "engine.min_workers lets the number of workers change, which would change the losses: "
                "distillation.centring sinkhorn_knopp, patch_weight and a koleo.group that does not divide batch.micro "
                "look at the pictures of all workers. Give moving_average and a smaller group, or no min_workers."
            )

    @property
    def rows_at_a_time(self) -> int | None:
        """How many pictures, of all workers, a loss compares with one another; None where the recipe fixes it."""
        balanced = self.trains_distillation and self.distillation.centring == "sinkhorn_knopp"
        spread = self.koleo.weight > 0 and self.batch.micro % self.koleo.group != 0
        if balanced or spread or self.trains_patches:
            return self.engine.workers * self.batch.micro
        return None

    @property
    def trains_reconstruction(self) -> bool:
        """Whether there is a decoder."""
        return self.reconstruction.weight > 0

    @property
    def trains_distillation(self) -> bool:
        """Whether there is a [CLS] head, and a teacher that is run."""
        return self.distillation.weight > 0

    @property
    def uses_locals(self) -> bool:
        """Whether local views are seen; only distillation looks at them."""
        return self.trains_distillation and self.views.local_count > 0

    @property
    def trains_patches(self) -> bool:
        """Whether visible tokens are distilled too."""
        return self.trains_distillation and self.distillation.patch_weight > 0

    def identity(self) -> dict[str, Any]:
        """What fixes the losses of a run: it cannot change between a run and its continuation.

        Left out is what only says where and how fast: workers, micro-batches, precision of communication, checkpoints,
        logs.
        """
        dumped = self.model_dump(mode="json", exclude={"engine", "checkpoint", "watch"})
        dumped["batch"] = {"size": self.batch.size}
        dumped["data"] = self.data.identity()
        dumped["precision"] = self.engine.precision
        dumped["rows_at_a_time"] = self.rows_at_a_time
        return dumped

    def build_model(self) -> PretrainModel:
        from training.pretraining.model import PretrainModel

        return PretrainModel(self)

    def make_trainer(
        self, storage: Storage, parallel: Parallel, stop: StopSignal, report: Report | None = None
    ) -> Trainer:
        from training.data.corpus import open_corpus
        from training.pretraining.trainer import Trainer

        return Trainer(self, storage, parallel, open_corpus(self.data), stop, report)

    def check(self) -> None:
        from training.data.corpus import open_corpus

        open_corpus(self.data)

    def resumed(self) -> PretrainConfig:
        return self.model_copy(update={"model": self.model.model_copy(update={"initial_weights": None})})
