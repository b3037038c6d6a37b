"""Select: what is removed because of other rows. Global, distributed, the same on any cluster.

Steps, each of many tasks (`pipeline.select.steps`); a step that is done is never done again:

    candidates   rows that pass the policy, without those that a reference rules out      per batch of rows
    keys         rows to the partitions of their content and of their bands               shuffle
    links-*      groups of equal bytes; pairs within the Hamming radius, exactly          per partition
    sample, train, vectors, links-vectors      neighbours by embedding                    shuffle
    resolved     stars among all rows with a link, in order of quality                    one task, or one per bin
    balance      clusters, strata, quotas, picks                                          shuffle

Rows are kept in order of quality; a row is dropped when a kept row has its bytes, is within the radius of its hash, or
is a neighbour of its embedding, and names the best such row. Whatever the number of partitions, batches, workers or
kills, the result is the same: searches are exact (bytes, hashes) or a function of the rows alone (embeddings), and
resolving looks at quality and id only.

Shuffles go through files on the run's storage (`pipeline.shuffle`), not through Ray's object store: they spill by
construction, survive lost nodes, and are what makes a killed selection continue in the middle.
"""

from pipeline.select.candidates import Layout, ReadScores
from pipeline.select.config import NearDuplicateConfig, SelectConfig, check_quality, check_select
from pipeline.select.run import Selection, Selector
from pipeline.select.steps import Steps

__all__ = [
    "Layout",
    "NearDuplicateConfig",
    "ReadScores",
    "SelectConfig",
    "Selection",
    "Selector",
    "Steps",
    "check_quality",
    "check_select",
]
