"""Which options of ``opensm.conf`` a running opensm takes over, by the option table of opensm 3.3 (``can_update``).

On SIGHUP opensm parses the file again and silently keeps the old value of every option that is not updatable. Files that options
name are read again with every sweep, so their contents can change although their names cannot.
"""

from __future__ import annotations

QOS_CLASSES = ("", "ca_", "sw0_", "swe_", "rtr_")
QOS_FIELDS = ("max_vls", "high_limit", "vlarb_high", "vlarb_low", "sl2vl")
UPDATABLE = frozenset(
    {f"qos_{kind}{field}" for kind in QOS_CLASSES for field in QOS_FIELDS}
    | {
        "qos", "congestion_control", "cc_sw_cong_setting_control_map", "cc_sw_cong_setting_victim_mask",
        "cc_sw_cong_setting_credit_mask", "cc_sw_cong_setting_threshold", "cc_sw_cong_setting_packet_size",
        "cc_sw_cong_setting_credit_starvation_threshold", "cc_sw_cong_setting_credit_starvation_return_delay",
        "cc_sw_cong_setting_marking_rate", "cc_ca_cong_setting_port_control", "cc_ca_cong_setting_control_map", "cc_cct",
        "sweep_interval", "force_heavy_sweep", "reassign_lids", "max_op_vls", "head_of_queue_lifetime",
        "leaf_head_of_queue_lifetime", "packet_life_time", "vl_stall_count", "subnet_timeout", "force_link_speed",
        "sm_priority", "sm_sl", "part_enforce", "keep_pkey_indexes", "scatter_ports", "port_shifting", "connect_roots",
        "nue_max_num_vls", "torus_config", "log_flags",
    }
)  # fmt: skip
# These stand once per service level: "name <sl> <value>"; the lever's key is "name <sl>".
PER_LEVEL = frozenset(
    f"cc_ca_cong_setting_{field}" for field in ("ccti_timer", "ccti_increase", "trigger_threshold", "ccti_min")
)
RESTART_ONLY = frozenset(
    {
        "routing_engine", "use_ucast_cache", "lmc", "guid", "daemon", "cc_key", "cc_max_outstanding_mads", "hop_weights_file",
        "port_prof_ignore_file", "guid_routing_order_file", "port_search_ordering_file", "root_guid_file", "cn_guid_file",
        "lfts_file", "qos_policy_file", "partition_config_file", "console", "console_port", "perfmgr", "transaction_timeout",
        "avoid_throttled_links",
    }
)  # fmt: skip
# NVIDIA's subnet manager has these besides. Which of them it takes over without a restart is documented nowhere, so they are
# written only where opensm.conf has them already, and the log and the tables decide whether they took.
NVIDIA = frozenset(
    {
        "ar_mode", "ar_sl_mask", "ar_transport_mask", "enable_ar_by_device_cap", "enable_ar_group_copy", "shield_mode", "pfrn_sl",
        "pfrn_mask_clear_timeout", "adaptive_timeout_sl_mask", "hbf_sl_mask", "hbf_hash_type", "hbf_seed", "hbf_hash_fields",
        "hbf_weights", "mlnx_congestion_control",
    }
    | {f"qos_sw2sw_{field}" for field in QOS_FIELDS}
)  # fmt: skip
SECRETS = frozenset({"m_key", "sm_key", "sa_key", "cc_key"})


def kind_of_option(key: str) -> str:
    """``updatable``, ``nvidia``, ``restart``, ``secret`` or ``unknown``. ``key`` may end in a service level."""
    name, _, level = key.partition(" ")
    if level:
        legal = level.isascii() and level.isdigit() and int(level) < 16
        return "updatable" if name in PER_LEVEL and legal else "unknown"
    if name in SECRETS:
        return "secret"
    if name in UPDATABLE:
        return "updatable"
    if name in NVIDIA:
        return "nvidia"
    return "restart" if name in RESTART_ONLY else "unknown"
