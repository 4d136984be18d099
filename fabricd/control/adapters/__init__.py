"""Thin adapters over devices/."""
