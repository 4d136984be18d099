"""A pure, fast flow model of a lossless fabric. No I/O."""
