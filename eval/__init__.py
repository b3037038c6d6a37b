"""Metrics, probes, comparisons and benchmarks."""
