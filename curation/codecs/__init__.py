"""How encoded pictures are recognised, measured and decoded. Use `curation.decode`, which states the policy."""
