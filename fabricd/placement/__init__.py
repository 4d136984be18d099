"""Topology-aware placement: solver and exporters."""
