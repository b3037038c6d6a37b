"""The training engine: how a model is stepped, saved and resumed.

parallel.py      what a way of training offers; single.py is plain torch, zero.py DeepSpeed ZeRO-3
shards.py        the state of a rank as named pieces of flat tensors, which do not depend on the number of ranks
piece_files.py   the files of a rank's pieces, checked as they are read
checkpoint.py    writes them once and whole, finds the newest that is complete, reads them at any number of ranks
keeper.py        the checkpoints of a running run: when to write, what to go on from
loop.py          the steps of a run, alike for every way of training; state.py and totals.py are what they change
journal.py       metrics, pictures and rates, on rank 0
stop.py          SIGTERM, a preempted node, the driver's request: save first
launch.py        Ray Train: workers, restarts, another number of workers
"""
