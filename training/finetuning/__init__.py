"""Fine-tuning of a backbone on a human task, with the engine of pretraining.

config.py     the `finetune` section
pictures.py   where labelled pictures come from: the people renderer
tasks.py      what a task has for training and for measuring, alike for all five
samples.py    places in the order -> batches: frames, augmentations, targets
model.py      backbone, head and loss, for the engine
measure.py    the task's metric over held-out pictures, by all ranks together
trainer.py    the run: schedule, layer-wise rates, the best checkpoint by metric
"""
