"""When the fabric is looked at again, and that history follows the slot."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from fabricd.config.topology import TopologyConfig
from fabricd.errors import FabricdError
from fabricd.model.topology import Topology
from fabricd.topology.cache import ROUTES_SUFFIX, load_cache, save_cache
from fabricd.topology.live import Picture
from fabricd.topology.minhop import assumed_routes
from fabricd.topology.slots import SlotBook
from fabricd.topology.watch import TopologyWatch
from tests.fabrics import HCA_GUID, LEAF_GUID, plain_fat_tree


class Camera:
    """Stands for discovery: hands out the topology it holds, and remembers what it was told is known."""

    def __init__(self) -> None:
        self.topology = plain_fat_tree()
        self.known: list[set[int]] = []
        self.broken = False

    def __call__(self, known: Mapping[int, str]) -> Picture:
        if self.broken:
            raise FabricdError("no answer")
        self.known.append(set(known))
        copy = Topology(nodes=dict(self.topology.nodes), links=list(self.topology.links))
        return Picture(copy)

    def swap(self, old: int, new: int) -> None:
        node = plain_fat_tree().nodes[old]
        node.guid, node.port_guids, self.topology = new, {1: new}, plain_fat_tree()
        del self.topology.nodes[old]
        self.topology.nodes[new] = node
        for link in self.topology.links:
            link.a, link.b = sorted((new if guid == old else guid, port) for guid, port in (link.a, link.b))


def watch(tmp_path: Path, **settings: float) -> tuple[TopologyWatch, Camera]:
    camera = Camera()
    config = TopologyConfig(cache=str(tmp_path / "topology.json"), **settings)  # type: ignore[arg-type]
    return TopologyWatch(config, camera), camera


def test_looked_at_first_then_on_change_once_settled_then_by_the_clock(tmp_path: Path) -> None:
    watcher, _ = watch(tmp_path, refresh_interval=300, settle=5, settle_max=60)
    assert watcher.due(0)
    watcher.refresh(0)
    assert not watcher.due(200)
    watcher.note_change(200)
    assert not watcher.due(204)
    watcher.note_change(204)
    assert not watcher.due(208)
    assert watcher.due(209)
    watcher.refresh(209)
    assert not watcher.due(508)
    assert watcher.due(509)


def test_a_change_that_never_settles_is_looked_at_all_the_same(tmp_path: Path) -> None:
    watcher, _ = watch(tmp_path, settle=5, settle_max=60)
    watcher.refresh(0)
    for second in range(1, 62):
        watcher.note_change(second)
    assert watcher.due(61)


def test_names_are_read_again_only_in_the_periodic_look(tmp_path: Path) -> None:
    watcher, camera = watch(tmp_path, refresh_interval=300)
    watcher.refresh(0)
    watcher.refresh(10)
    watcher.refresh(300)
    assert [len(known) for known in camera.known] == [0, len(camera.topology.nodes), 0]


def test_differences_and_slots(tmp_path: Path) -> None:
    watcher, camera = watch(tmp_path)
    assert watcher.refresh(0).differences == []
    camera.swap(HCA_GUID, 0xAAAA)
    changed = watcher.refresh(10)
    assert [difference.kind for difference in changed.differences] == ["replaced_adapter"]
    assert changed.successor == {HCA_GUID: 0xAAAA}
    assert watcher.slots.predecessors(0xAAAA) == [HCA_GUID]
    assert watcher.slots.slot_of[0xAAAA] == watcher.slots.slot_of[HCA_GUID]


def test_a_device_that_was_away_for_a_while_is_still_replaced_by_what_takes_its_slot(tmp_path: Path) -> None:
    watcher, camera = watch(tmp_path)
    watcher.refresh(0)
    whole = camera.topology
    camera.topology = Topology(
        nodes={guid: node for guid, node in whole.nodes.items() if guid != HCA_GUID},
        links=[link for link in whole.links if HCA_GUID not in (link.a[0], link.b[0])],
    )
    assert [d.kind for d in watcher.refresh(10).differences] == ["missing_node", "missing_link"]
    later, camera_later = watch(tmp_path)
    assert later.restore()  # and a restart meanwhile
    camera_later.swap(HCA_GUID, 0xAAAA)
    changed = later.refresh(20)
    assert [d.kind for d in changed.differences] == ["replaced_adapter", "added_link"]
    assert later.slots.predecessors(0xAAAA) == [HCA_GUID]
    assert later.gone.nodes == {}


def test_routes_are_cached_with_the_topology_and_not_mixed_with_another(tmp_path: Path) -> None:
    topology = plain_fat_tree()
    path = tmp_path / "cache.json"
    table = {LEAF_GUID: {(HCA_GUID + 5, 1): [5]}}
    routes = assumed_routes(topology).with_tables(table, "lft")
    save_cache(path, Picture(topology, routes), SlotBook(), Topology())
    again = load_cache(path).picture.routes
    assert again is not None
    assert again.sources == routes.sources
    assert again.egress(LEAF_GUID, HCA_GUID + 5) == [5]
    for switch in routes.switches:
        for destination in routes.destinations:
            assert again.egress(int(switch), int(destination)) == routes.egress(int(switch), int(destination))
    other = plain_fat_tree(leaves=5)
    save_cache(tmp_path / "other.json", Picture(other, assumed_routes(other)), SlotBook(), Topology())
    Path(f"{path}{ROUTES_SUFFIX}").write_bytes(Path(f"{tmp_path / 'other.json'}{ROUTES_SUFFIX}").read_bytes())
    mixed = load_cache(path).picture.routes
    assert mixed is not None
    assert mixed.source == "assumed"
    Path(f"{path}{ROUTES_SUFFIX}").write_bytes(b"PK broken")
    assert load_cache(path).picture.routes is not None
    save_cache(path, Picture(topology), SlotBook(), Topology())
    assert not Path(f"{path}{ROUTES_SUFFIX}").exists()


def test_a_failed_look_keeps_the_old_picture_and_does_not_try_at_once(tmp_path: Path) -> None:
    watcher, camera = watch(tmp_path, refresh_interval=300)
    watcher.refresh(0)
    before = watcher.current
    camera.broken = True
    with pytest.raises(FabricdError):
        watcher.refresh(300)
    assert watcher.current is before
    assert not watcher.due(301)


def test_the_cache_brings_names_and_slots_back(tmp_path: Path) -> None:
    watcher, camera = watch(tmp_path)
    watcher.refresh(0)
    camera.swap(HCA_GUID, 0xAAAA)
    watcher.refresh(1)
    later, camera = watch(tmp_path)
    assert later.restore()
    assert later.current is not None
    assert set(later.current.nodes) == set(watcher.current.nodes) if watcher.current else False
    assert later.slots.predecessors(0xAAAA) == [HCA_GUID]
    camera.swap(HCA_GUID, 0xBBBB)
    assert later.refresh(2).successor == {0xAAAA: 0xBBBB}
    assert later.slots.predecessors(0xBBBB) == [0xAAAA, HCA_GUID]


EMPTY = '{"nodes":[],"links":[]}'
BROKEN = ["", "{", "[]", f'{{"topology":{EMPTY}}}', '{"topology":3,"slots":[]}', f'{{"topology":{EMPTY},"slots":[[]]}}']


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_cache_is_no_cache(tmp_path: Path, content: str) -> None:
    watcher, _ = watch(tmp_path)
    assert not watcher.restore()
    (tmp_path / "topology.json").write_text(content)
    assert not watcher.restore()
    assert watcher.current is None


def test_a_cache_that_cannot_be_written_is_counted(tmp_path: Path) -> None:
    watcher = TopologyWatch(TopologyConfig(cache=str(tmp_path / "absent" / "file")), Camera())
    watcher.refresh(0)
    assert watcher.current is not None
    assert watcher.current.rejects.counts == {"cache_unwritten": 1}


def test_a_spare_that_moves_leaves_its_old_slot() -> None:
    book = SlotBook()
    book.see({1, 2}, 0)
    book.replace(1, 2, 10)
    assert book.present(book.slot_of[1]) == 2
    assert [stay.guid for stay in book.stays[0]] == [1, 2]
    assert book.present(1) is None
    book.replace(1, 2, 11)
    assert len(book.stays[0]) == 2
    assert book.predecessors(9) == []
    again = SlotBook.from_json(json.loads(json.dumps(book.to_json())))
    assert again == book
