"""Watching a training run: what it measures, shows and keeps of its progress, and when it stops itself.

    config.py        WatchConfig: the `watch` section
    names.py         names of metrics, the same everywhere
    events.py        metrics.jsonl, one sequence of lines whatever was killed
    tensorboard.py   the same in TensorBoard, where it is installed
    console.py       a bar on a terminal, lines in a log
    step_cost.py     FLOPs and tokens of one training image, from configurations alone
    peak_flops.py    what a device could do at most
    throughput.py    rates, model-FLOPs utilisation, time left, peak memory
    stopwatch.py     where the time of a step goes
    pictures.py      reconstruction pictures
    guard.py         stops or skips at losses that are not finite, or spikes
    incidents.py     what is kept of such a step
    json_values.py   non-finite numbers in JSON

A log opened with `resume_step` goes on as if the run had never been interrupted. Call `sync` of the logs before a
checkpoint is published, and put `Guard.state_dict()` into it. All of it belongs on rank 0, except the guard, which
every rank asks with the same numbers.
"""
