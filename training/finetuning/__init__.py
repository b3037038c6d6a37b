"""Fine-tuning of a backbone on a human task, or on several at a time, with the engine of pretraining.

config.py     the `finetune` section
pictures.py   where labelled pictures come from: the people renderer
tasks.py      what a task has for training and for measuring, alike for all five
multi.py      several tasks side by side
samples.py    places in the order -> batches: frames, augmentations, targets
model.py      backbone, heads and loss, for the engine
measure.py    the tasks' metrics over held-out pictures, by all ranks together
drawings.py   pictures of a measurement: input, prediction, truth
trainer.py    the run: schedule, layer-wise rates, the best checkpoint by metric
"""
