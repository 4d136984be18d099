"""The whole configuration: one struct a section. A section's struct lives in the file of its name."""

from __future__ import annotations

import msgspec

from fabricd.config.agent import AgentConfig
from fabricd.config.aggregator import AggregatorConfig
from fabricd.config.alerts import AlertsConfig
from fabricd.config.api import ApiConfig
from fabricd.config.broker import BrokerConfig
from fabricd.config.collector import CollectorConfig
from fabricd.config.control import ControlConfig
from fabricd.config.detector import DetectorConfig
from fabricd.config.fabric import FabricConfig
from fabricd.config.jobs import JobsConfig
from fabricd.config.placement import PlacementConfig
from fabricd.config.snmp import SnmpConfig
from fabricd.config.topology import TopologyConfig


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Every key has a default: an empty file is a valid configuration."""

    fabric: FabricConfig = msgspec.field(default_factory=FabricConfig)
    broker: BrokerConfig = msgspec.field(default_factory=BrokerConfig)
    agent: AgentConfig = msgspec.field(default_factory=AgentConfig)
    collector: CollectorConfig = msgspec.field(default_factory=CollectorConfig)
    aggregator: AggregatorConfig = msgspec.field(default_factory=AggregatorConfig)
    api: ApiConfig = msgspec.field(default_factory=ApiConfig)
    snmp: SnmpConfig = msgspec.field(default_factory=SnmpConfig)
    topology: TopologyConfig = msgspec.field(default_factory=TopologyConfig)
    placement: PlacementConfig = msgspec.field(default_factory=PlacementConfig)
    jobs: JobsConfig = msgspec.field(default_factory=JobsConfig)
    control: ControlConfig = msgspec.field(default_factory=ControlConfig)
    detector: DetectorConfig = msgspec.field(default_factory=DetectorConfig)
    alerts: AlertsConfig = msgspec.field(default_factory=AlertsConfig)
