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

Scale plan, for N rows, radius r, b = r + 1 bands, embeddings of d = 768 sent to m = 2 of k partitions. The constants
are CPU time of one core, measured by `python -m eval.benchmarks.bench_select --plan` with 1 million rows, and with
100,000 embeddings of 512; beyond that it is extrapolation (`eval/benchmarks/scale_plan.py`). Assumed: uniform hashes,
which real pools are not, 0.5 links a row, k-means partitions with a skew of 2. r = 8 was not measured as a whole.

    step           comparisons                           core time                                bytes written
    candidates     -                                     3.6 us a row                             81 N
    keys           -                                     0.22 us a record, 1 + b a row            0.73 N (24 + 17 b)
    links-bytes    -                                     0.49 us a row                            -
    links-bands    b N^2 / 2^(1 + 64/b) * C(q, r)        0.27 us a record, 71 ns a sorted entry   6 N
                   / 2^(64 r (q - r) / (b q))            (b N C(q, r)), 6.6 ns a comparison
    sample, train  8 * 64 k * k                          15 us a row; 12 ns a comparison *        -
    vectors        N k                                   24 us a copy *; 12 ns a comparison *     m N (1.7 d + 3 m + 10)
    links-vectors  2 (m - 1/2) N^2 / k                   7.6 us a copy *; 13 ns a comparison *    4 N
    resolved       -                                     12 us a link, and 10 us for components   84 a link
    balance        N K + 20 * 256 K * K, K = 4096        62 us a row *; 12 ns a comparison *      65 N
    (* at 512 dimensions, in proportion to d, as is the sample; q: bands of a bucket's second join, 6 to 13)

                       1 billion rows, k = 84,163             4 billion rows, k = 131,072
                       comparisons     TB   core-hours        comparisons     TB   core-hours
    links-bands r = 4      3.8e10    0.01          1.9            6.1e11    0.03          8.5
    links-bands r = 8      3.2e13    0.01          146            1.7e14    0.03        1,231
    keys r = 4 / 8              -    0.08 / 0.13   0.4 / 0.6           -    0.32 / 0.52   1.4 / 2.4
    sample, train          2.8e12       -           20            4.4e12       -           46
    vectors                8.4e13    2.7           428            5.2e14   10.7         2,622
    links-vectors          3.6e13    0.00          205            3.7e14    0.02        2,062
    balance                4.2e12    0.07           46            1.6e13    0.26          183
    all others                  -    0.12          4.2                 -    0.50           17
    all, r = 4 / 8         1.3e14 / 1.6e14  3.0    705 / 849      9.1e14 / 1.1e15  12   4,940 / 6,163

Equal bytes and near hashes alone, at r = 4, are under 30 core-hours for 4 billion rows. Training is one task (14 and 21
core-hours, on all cores of a node). At r = 8 a band has about 140 values, so that at most some 1,240 tasks share the
search. An earlier corpus (`against`) counts as rows, except that its embeddings are not compared with one another.
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
