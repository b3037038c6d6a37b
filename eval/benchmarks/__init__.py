"""Speed and memory, each figure beside the limit that it is measured against, in one run.

python -m eval.benchmarks.bench_screen [--json] ...
"""
