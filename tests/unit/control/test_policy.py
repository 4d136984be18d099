"""Policy files: what is wrong is named; what is possible is chosen in order; two causes never lead to an action."""

from pathlib import Path
from typing import Any, get_args

import pytest

from fabricd.control.adapters.base import AdapterError
from fabricd.control.advice import advice
from fabricd.control.levers import LEVERS, kind_of, routes_key, routes_lids
from fabricd.control.policy import CAUSES, NEVER, choose, load_policy
from fabricd.control.remedies import REMEDIES
from fabricd.errors import UsageError
from fabricd.model.action import Lever
from fabricd.model.verdict import Cause
from tests.unit.control.fabrics import RATE, Net, writable

ALL = writable(*((kind.adapter, kind.name) for kind in LEVERS))


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    return path


def test_the_shipped_policy_is_right_and_knows_every_cause_and_remedy() -> None:
    policy = load_policy()
    assert set(policy.causes) == set(get_args(Cause))
    assert {name for names in policy.causes.values() for name in names} == set(REMEDIES)
    assert all(not policy.causes[cause] for cause in NEVER)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version = 2\n[causes]\n", "version = 2"),
        ("version = 1\n[causes]\nincest = []\n", r"causes\.incest: no such cause"),
        ('version = 1\n[causes]\nincast = ["reboot"]\n', r"causes\.incast: no remedy 'reboot'"),
        ('version = 1\n[causes]\nincast = ["isolate_host"]\n', "isolate_host is no remedy for it"),
        ('version = 1\n[causes]\nqos_mismatch = ["ets_weights"]\n', "never an action"),
        ('version = 1\n[causes]\nincast = ["ecn_earlier", "ecn_earlier"]\n', "twice"),
        ("version = 1\n[causes]\n[remedies.reboot]\n", r"remedies\.reboot: no such remedy"),
        ("version = 1\n[causes]\n[remedies.hop_weight]\nmin_gain = 3\n", "min_gain"),
        ("version = 1\n[causes]\n[remedies.hop_weight]\nlease = 3\n", "lease"),
        ("version = 1\n[causes", "not TOML"),
        ("[causes]\n", "version"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        load_policy(written(tmp_path, text))
    assert "policy.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load_policy(tmp_path / "none.toml")


def test_every_cause_has_advice() -> None:
    net = Net()
    texts = {advice(net.verdict(cause, net.hosts[0], [])) for cause in CAUSES}
    assert len(texts) == len(CAUSES)
    assert "Not seen: leaf0" in advice(net.verdict("unknown", net.hosts[0], [], blind=["leaf0"]))


def incast(net: Net, senders: int = 3) -> tuple[Any, Any]:
    """Hosts of the second leaf fill the first host's port."""
    receiver = net.hosts[0]
    pairs = [net.send(src, receiver, RATE / senders, stall=0.6) for src in net.hosts[4 : 4 + senders]]
    return net.verdict("incast", net.peers[receiver], net.hosts[4 : 4 + senders]), pairs


def options(**values: str) -> Any:
    def read(lever: Lever) -> Any:
        return values.get(lever.key)

    return read


def test_the_order_is_the_policys_and_the_reasons_are_told() -> None:
    net = Net()
    verdict, pairs = incast(net)
    choice = choose(load_policy(), net.situation(verdict, pairs, ALL, options()))
    assert [candidate.remedy.name for candidate in choice.candidates] == ["rate_limit_senders"]
    assert choice.not_possible["ecn_earlier"] == "the fabric is InfiniBand"
    assert "not set there" in choice.not_possible["cc_earlier"]


def test_switched_off_is_not_chosen(tmp_path: Path) -> None:
    text = 'version = 1\n[causes]\nincast = ["rate_limit_senders"]\n[remedies.rate_limit_senders]\nenabled = false\n'
    net = Net()
    verdict, pairs = incast(net)
    choice = choose(load_policy(written(tmp_path, text)), net.situation(verdict, pairs, ALL, options()))
    assert not choice.candidates
    assert choice.not_possible == {"rate_limit_senders": "switched off in the policy"}


@pytest.mark.parametrize("cause", sorted(NEVER))
def test_two_causes_are_never_acted_upon(cause: Any) -> None:
    net = Net()
    choice = choose(load_policy(), net.situation(net.verdict(cause, net.hosts[0], []), [], ALL, options()))
    assert not choice.candidates


def test_no_lever_no_action() -> None:
    net = Net()
    verdict, pairs = incast(net)
    choice = choose(load_policy(), net.situation(verdict, pairs, writable(), options()))
    assert not choice.candidates
    assert choice.not_possible["rate_limit_senders"] == "ufm cannot write sl_rate"


def test_senders_get_what_the_root_takes_and_what_they_need_elsewhere() -> None:
    net = Net()
    verdict, pairs = incast(net)
    pairs.append(net.send(net.hosts[4], net.hosts[5], RATE * 0.1))
    (candidate,) = choose(load_policy(), net.situation(verdict, pairs, ALL, options())).candidates
    limits = [change.new["0"] for change in candidate.draft.changes]
    assert len(limits) == 3
    even = 0.85 * 400_000 / 3
    assert limits[1:] == [pytest.approx(even, rel=0.02)] * 2
    assert limits[0] == pytest.approx(even + 1.05 * 40_000, rel=0.1)


def test_adaptive_routing_adds_the_service_level_only() -> None:
    net = Net(priorities=(2,))
    pairs = [net.send(net.hosts[0], net.hosts[4], RATE), net.send(net.hosts[1], net.hosts[6], RATE)]
    index = net.routes.frame.destination_index
    row, port, _ = net.routes.walk(index[net.hosts[0]], index[net.hosts[4]])[0]
    root = (int(net.routes.frame.switches[row]), port)
    verdict = net.verdict("ecmp_collision", root, net.hosts[:2], priority=2)
    situation = net.situation(verdict, pairs, ALL, options(ar_sl_mask="0x0001"))
    first = choose(load_policy(), situation).candidates[0]
    assert first.remedy.name == "adaptive_routing"
    assert (first.draft.changes[0].old, first.draft.changes[0].new) == ("0x0001", "0x0005")


def test_a_host_that_does_not_drain_loses_pause_on_its_priority_only() -> None:
    net = Net(priorities=(3,))
    pairs = [net.send(src, net.hosts[0], RATE / 20, stall=0.9) for src in net.hosts[4:7]]
    verdict = net.verdict("pfc_storm", net.hosts[0], net.hosts[4:7], priority=3)
    mask = [False, False, False, True, True, False, False, False]
    situation = net.situation(verdict, pairs, ALL, lambda lever: mask, ethernet=True)
    first = choose(load_policy(), situation).candidates[0]
    assert first.remedy.name == "pfc_off_host"
    assert first.remedy.time_limited
    assert first.draft.changes[0].new == [False, False, False, False, True, False, False, False]
    assert first.draft.touched.hosts == ()


def test_shares_given_to_the_victims_sum_to_100() -> None:
    net = Net(priorities=(3, 4))
    pairs = [net.send(net.hosts[4], net.hosts[0], RATE, column=1)]
    verdict = net.verdict("priority_contention", net.peers[net.hosts[0]], [net.hosts[4]], priority=4)
    shares = [10, 0, 0, 20, 70, 0, 0, 0]
    situation = net.situation(verdict, pairs, ALL, lambda lever: shares if lever.name == "ets" else None, ethernet=True)
    first = choose(load_policy(), situation).candidates[0]
    assert first.remedy.name == "ets_weights"
    assert first.draft.changes[0].new == [10, 0, 0, 40, 50, 0, 0, 0]


def test_marks_are_only_moved_where_they_are_in_use() -> None:
    net = Net(priorities=(3,))
    verdict, pairs = incast(net)
    verdict.priority = 3
    for top, possible in ((10, True), (0, False)):
        values = {"kmin": 4, "kmax": 10, "pmax": top}
        situation = net.situation(verdict, pairs, ALL, lambda lever, values=values: values, ethernet=True)
        choice = choose(load_policy(), situation)
        assert [c.remedy.name for c in choice.candidates] == (["ecn_earlier"] if possible else [])
        if possible:
            assert choice.candidates[0].draft.changes[0].new == {"kmin": 2, "kmax": 5, "pmax": 20}


def test_a_lever_that_cannot_be_read_is_a_reason_not_an_error() -> None:
    net = Net()
    verdict, pairs = incast(net)

    def silent(lever: Lever) -> Any:
        raise AdapterError("no answer")

    choice = choose(load_policy(), net.situation(verdict, pairs, ALL, silent))
    assert "no answer" in choice.not_possible["cc_earlier"]


def test_levers_have_one_meaning() -> None:
    assert len({(kind.adapter, kind.name) for kind in LEVERS}) == len(LEVERS)
    assert routes_lids(routes_key([15, 3])) == [3, 15]
    with pytest.raises(UsageError, match="not a list of LIDs"):
        routes_lids("3;15")
    with pytest.raises(UsageError, match="has no lever"):
        kind_of(Lever(adapter="ufm", device="ufm", name="reboot"))


def test_a_file_nested_too_deep_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "deep.toml"
    file.write_text("a = " + "[" * 5000 + "]" * 5000)
    with pytest.raises(UsageError, match="not TOML"):
        load_policy(file)
