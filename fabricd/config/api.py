"""[api]: settings of the api."""

import msgspec


class ApiConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Filled by the room that uses it."""
