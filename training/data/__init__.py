"""Pretraining data: exported shards in, micro-batches of views out, reproducibly.

| file | what it does |
|---|---|
| `config.py` | the `data` section |
| `corpus.py`, `index.py` | manifests and shard indices: row -> image in a tar |
| `order.py`, `interleave.py`, `keys.py` | place in the endless order -> row; every draw is a function of a key |
| `sampler.py` | (step, micro-step, rank) -> places |
| `cache.py`, `reader.py` | bytes of an image, from here, from the cache, or from afar |
| `samples.py` | read, decode, cut views, draw masks; what cannot be read is replaced, the same way on every run |
| `views.py`, `colour.py`, `batch.py` | augmentation, and the batch |
| `loader.py` | worker processes |

One integer, the step, is the whole state of a run's data: step t sees the places [t * B, (t + 1) * B) of
`SampleOrder`, whatever the number of ranks and workers, and the order has a closed form. Memory per process: about 600
bytes per shard, and 40 for the order; 120 bytes per sample of the last 2 * `shuffle_shards` shards, and 8 per sample of
the last 2 windows. A corpus of 10**9 samples in 10**5 shards takes about 64 MB, and 41 MB more for its windows of 16
shards: 0.1 bytes per sample.
"""
