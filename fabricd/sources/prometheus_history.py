"""Counters of yesterday out of a Prometheus server: ``query_range`` over what the common exporters keep."""
