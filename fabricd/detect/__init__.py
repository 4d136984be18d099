"""Features, wait-for graph, roots, causes, victims. Arrays in, verdicts out; no I/O, no globals."""
