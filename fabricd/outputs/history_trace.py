"""History of counters as a trace: what the detector replays."""
