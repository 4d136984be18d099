"""[topology]: settings of the topology."""

import msgspec


class TopologyConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Filled by the room that uses it."""
