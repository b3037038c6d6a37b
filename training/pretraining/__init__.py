"""Pretraining: what a run is configured by (`config.py`), and the model of a step (`model.py`).

The formulas are in `training/objectives/`, the pictures come from `training/data/`, and the loop that steps, saves and
resumes is `training/engine/`.
"""
