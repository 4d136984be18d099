"""[agent]: settings of the agent."""

import msgspec


class AgentConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Filled by the room that uses it."""
