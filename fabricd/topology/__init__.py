"""Discovery, routes as sets of egress ports, rails, differences."""
