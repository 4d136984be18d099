"""Counters out of ibdiagnet output directories: each run is one sample."""
