"""Composition, privileges and life cycle of the processes. No logic."""
