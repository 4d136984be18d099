"""Ingest, columns (numpy), rates, history."""
