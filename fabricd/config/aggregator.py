"""[aggregator]: settings of the aggregator."""

import msgspec


class AggregatorConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Filled by the room that uses it."""
