"""[control]: whether and how much fabricd may change on the fabric. The default changes nothing."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class MaintenanceWindow(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """New actions that touch what is named are refused from ``start`` to ``end``; undo still runs."""

    start: Annotated[str, Meta(description="ISO 8601 time with zone, e.g. 2026-01-31T22:00:00Z")]
    end: Annotated[str, Meta(description="ISO 8601 time with zone")]
    switches: Annotated[list[str], Meta(description="switch GUIDs (0x…)")] = []
    pods: Annotated[list[str], Meta(description="names of pods or rail groups")] = []
    nodes: Annotated[list[str], Meta(description="host names")] = []


class GuardConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Limits that hold whatever policy wants."""

    new_per_minute: Annotated[int, Meta(ge=0, description="new actions a minute")] = 1
    new_per_hour: Annotated[int, Meta(ge=0, description="new actions an hour")] = 6
    in_force_per_switch: Annotated[int, Meta(ge=0, description="actions in force on one switch")] = 1
    in_force: Annotated[int, Meta(ge=0, description="actions in force in all")] = 4
    links_share: Annotated[float, Meta(ge=0, le=1, description="largest share of all links touched at once")] = 0.01
    uplinks_per_leaf: Annotated[int, Meta(ge=0, description="uplinks touched at once on one leaf")] = 1
    visible_share: Annotated[float, Meta(ge=0, le=1, description="least share of ports with fresh samples")] = 0.95
    sample_age_intervals: Annotated[float, Meta(gt=0, description="oldest newest sample, in polling intervals")] = 3.0
    dwell_s: Annotated[float, Meta(ge=0, description="least seconds between two actions on one lever")] = 120.0
    repeat_after_rollback_s: Annotated[
        float, Meta(ge=0, description="seconds before a proposal that was rolled back may come again")
    ] = 1800.0
    allow_host_off: Annotated[bool, Meta(description="whether a host may be cut off (isolating its only port)")] = False


class ControlConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    mode: Annotated[
        Literal["observe", "advise", "enforce"],
        Meta(
            description="observe: write nothing; advise: wait for a person's approval; enforce: act within the guard's limits"
        ),
    ] = "observe"
    journal: Annotated[str, Meta(description="SQLite file of actions, latches and ledger")] = (
        "/var/lib/fabricd/control/journal.db"
    )
    policy_file: Annotated[str, Meta(description="TOML file that orders remedies; empty: built-in order")] = ""
    interval: Annotated[float, Meta(ge=0.1, le=60, description="seconds between two looks at the fabric")] = 1.0
    latch_dir: Annotated[
        str, Meta(description="directory in which a file named pause, freeze or revert-all sets that latch")
    ] = "/var/lib/fabricd/control/latches"
    approval_token_file: Annotated[
        str,
        Meta(description="credential file with the token that requests over MQTT must carry; empty: none are taken"),
    ] = ""
    pairs_file: Annotated[
        str, Meta(description="who talks to whom, lines src,dst,priority; empty: guessed from what ports send")
    ] = ""
    dry_run: Annotated[
        bool, Meta(description="adapters show what they would send and send nothing, whatever the mode")
    ] = False
    lease_s: Annotated[
        float, Meta(gt=0, description="seconds an action stays in force unless the evidence renews it")
    ] = 300.0
    verify_within_intervals: Annotated[
        int,
        Meta(ge=1, description="polling intervals within which victims must be better, else the action is taken back"),
    ] = 10
    promised_share: Annotated[
        float, Meta(gt=0, le=1, description="share of the predicted gain that must be seen for an action to stay")
    ] = 0.5
    min_gain: Annotated[float, Meta(ge=0, le=1, description="least predicted gain for which anything is proposed")] = (
        0.2
    )
    adapters: Annotated[list[str], Meta(description="adapters in use: opensm, ufm, snmp; empty: none")] = []
    opensm_conf: Annotated[str, Meta(description="opensm's configuration file")] = "/etc/opensm/opensm.conf"
    opensm_log: Annotated[str, Meta(description="opensm's log file, where it acknowledges a sweep")] = (
        "/var/log/opensm.log"
    )
    opensm_pid_file: Annotated[str, Meta(description="file with opensm's process id; empty: use the console")] = ""
    opensm_console: Annotated[str, Meta(description="host:port of opensm's loopback console; empty: SIGHUP")] = ""
    opensm_directories: Annotated[
        list[str], Meta(description="directories besides opensm_conf's own whose files fabricd may write")
    ] = []
    opensm_cache_dir: Annotated[str, Meta(description="directory in which opensm keeps guid2lid")] = "/var/cache/opensm"
    opensm_ssh: Annotated[
        list[str],
        Meta(
            description="command that reaches fabricd sm-host where opensm runs, e.g. ssh -o BatchMode=yes fabricd@ufm1; empty: here"
        ),
    ] = []
    collector_socket: Annotated[
        str,
        Meta(
            description="the collector's socket, by which changes are read back from switches; empty: no read-back in-band"
        ),
    ] = "/run/fabricd/collector.sock"
    ufm_url: Annotated[str, Meta(description="base address of UFM")] = ""
    ufm_prefix: Annotated[str, Meta(description="path of its REST interface: /ufmRest, /ufmRestV2, /ufmRestV3")] = (
        "/ufmRest"
    )
    ufm_user: Annotated[str, Meta(description="user for Basic authentication")] = ""
    ufm_password_file: Annotated[str, Meta(description="credential file with the password")] = ""
    ufm_token_file: Annotated[str, Meta(description="credential file with a token")] = ""
    ufm_cert_file: Annotated[str, Meta(description="client certificate (PEM)")] = ""
    ufm_key_file: Annotated[str, Meta(description="key of the client certificate")] = ""
    ufm_ca_file: Annotated[str, Meta(description="authorities that may sign UFM's certificate")] = ""
    ufm_insecure: Annotated[bool, Meta(description="take any certificate of UFM's (its own is self-signed)")] = False
    ufm_time_limit: Annotated[float, Meta(gt=0, le=300, description="seconds for a job of UFM to end")] = 60.0
    snmp_targets: Annotated[str, Meta(description="TOML file of switches: address, profile, SNMPv3 user")] = ""
    snmp_secrets_file: Annotated[str, Meta(description="credential file with SNMPv3 keys")] = ""
    maintenance: Annotated[list[MaintenanceWindow], Meta(description="windows in which new actions are refused")] = []
    guard: GuardConfig = msgspec.field(default_factory=GuardConfig)
