"""Sapiens2 models: encoder, task heads, pretraining decoder, a zoo of them by name, checkpoints in three formats."""

from training.models.checkpoints import load_weights, save_weights
from training.models.zoo import create, list_models

__all__ = ["create", "list_models", "load_weights", "save_weights"]
