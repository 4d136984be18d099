"""[broker]: settings of the broker."""

import msgspec


class BrokerConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Filled by the room that uses it."""
