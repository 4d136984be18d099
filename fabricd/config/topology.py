"""[topology]: where the fabric's picture comes from, and when it is taken anew."""

from typing import Annotated

import msgspec
from msgspec import Meta


class TopologyConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Discovery has its own clock: counters are polled every second, the wiring is looked at when something changed."""

    source: Annotated[
        str,
        Meta(
            description="smp (directed-route discovery), or a file: ibnetdiscover text, opensm-subnet.lst, ibdiagnet2.db_csv, "
            "a links file (TOML) of a RoCE fabric, or exported JSON"
        ),
    ] = "smp"
    device: Annotated[str, Meta(description="InfiniBand device to discover from (empty: the first active one)")] = ""
    port: Annotated[int, Meta(ge=0, le=254, description="its port (0: the first active one)")] = 0
    mad_socket: Annotated[
        str, Meta(description="name of a simulated fabric's MAD socket, instead of a device (ibsim, fabricd twin)")
    ] = ""
    mad_host: Annotated[str, Meta(description="node to sit at on the simulated fabric (empty: its first)")] = ""
    m_key_file: Annotated[
        str,
        Meta(
            description="M_Keys of a hardened fabric, in the form of opensm's guid2mkey; a bare name is a systemd credential"
        ),
    ] = ""
    node_name_map: Annotated[str, Meta(description="node-name-map of the InfiniBand tools: GUID and name a line")] = ""
    ibdiagnet_dir: Annotated[
        str,
        Meta(description="ibdiagnet's output: adaptive-routing groups, cables, FEC, bit error rates, faceplate labels"),
    ] = ""
    lft_file: Annotated[
        str, Meta(description="forwarding tables for a source that is a file: dump_lfts, opensm-lfts.dump or .fdbs")
    ] = ""
    racks: Annotated[str, Meta(description="file of racks: node name or host pattern, rack, a line each")] = ""
    golden: Annotated[str, Meta(description="the fabric as it should be, for topo diff")] = ""
    cache: Annotated[str, Meta(description="file that keeps the last topology and the history of slots")] = (
        "/var/lib/fabricd/topology/topology.json"
    )
    refresh_interval: Annotated[
        float, Meta(ge=10, le=86400, description="seconds between two looks at the whole fabric when nothing happens")
    ] = 300.0
    probe_interval: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            description="seconds between two looks at port states alone, which notice what came up (0: none)",
        ),
    ] = 30.0
    settle: Annotated[
        float, Meta(ge=0, le=600, description="seconds without further change before a change is looked at")
    ] = 5.0
    settle_max: Annotated[
        float, Meta(ge=1, le=3600, description="a change is looked at after this many seconds even if changes go on")
    ] = 60.0
    flap_half_life: Annotated[
        float, Meta(ge=1, le=86400, description="seconds in which the penalty of a flapping link halves")
    ] = 60.0
    flap_stable: Annotated[
        float, Meta(ge=1, le=86400, description="seconds up without a flap after which a link counts as stable again")
    ] = 300.0
