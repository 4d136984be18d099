"""Exposition, webhooks, recordings, reports."""
