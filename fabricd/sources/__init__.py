"""Counters in. A source knows nothing of MQTT."""
