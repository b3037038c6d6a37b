"""What runs, in what order, on which resources: the `populace` command and the Ray graphs behind it."""
