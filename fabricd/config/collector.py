"""[collector]: settings of the collector."""

import msgspec


class CollectorConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Filled by the room that uses it."""
