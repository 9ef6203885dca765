from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.work import calls

from gridbot_client.protocol.messages import Manifest, Resources
from gridbot_policies import PolicySet
from gridbot_policies.classad import DEFAULT_LIMITS, record
from gridbot_policies.explain.rejections import judge
from gridbot_server.matching.explanation import Standing, explanation, host_explanation
from gridbot_server.matching.hosts import BotRequirements, HostClient, Known, conditions, survey

OWNER, OTHER = 1, 2
_hosts = itertools.count(1)


def host(name: str | None = "alpha", **ad: Any) -> HostClient:
    own = {"NumCpus": 4, "Memory": 8000, "Disk": 100_000, "OpSys": "LINUX", "ErrorRate": 0.1}
    return HostClient(
        next(_hosts), {"Name": name or "secret", **own, **ad}, OWNER, [], [OWNER], 2, name
    )


def demand(policy: str = "", tail: bool = False, **resources: int) -> BotRequirements:
    return BotRequirements(
        bot=7,
        owner=OWNER,
        owner_name="alice",
        signed=False,
        owner_signed=True,
        manifest=Manifest("alice", ("p",), resources=Resources(**resources)),
        policies=PolicySet.parse(policy),
        ad=record({"Tail": tail, "JobsLeft": 10}),
        queue=record({"BOTsInQueue": 1, "JobsInQueue": 10}),
        now=0.0,
    )


def standing(**changes: Any) -> Standing:
    return replace(Standing(7, "running", unsent=10, running=0, rivals=[]), **changes)


def explained(wanted: BotRequirements, *hosts: HostClient, **changes: Any) -> dict[str, Any]:
    return explanation(wanted, hosts, standing(**changes))


def counts(found: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {item["text"]: (item["rejects"], item["only"]) for item in found["conditions"]}


def texts(policy: str, tail: bool) -> list[tuple[str, str | None]]:
    nothing = host(ErrorRate=None, Memory=None, JobsToday=None)
    conditions = explained(demand(policy, tail), nothing)["conditions"]
    return [(item["text"], item["via"]) for item in conditions]


def test_each_condition_tells_how_many_hosts_it_rejects_and_how_many_alone() -> None:
    wanted = demand('JobRequirements = Host.Memory >= 9000 && Host.OpSys == "LINUX"', cpus=8)
    found = explained(
        wanted,
        host(NumCpus=8), host(NumCpus=8), host(NumCpus=2),
        host(NumCpus=8, OpSys="WINDOWS", Memory=9000), host(NumCpus=8, Memory=16_000),
    )  # fmt: skip
    assert (found["hosts_known"], found["hosts_matching"]) == (5, 1)
    assert counts(found) == {
        "Host.Memory >= 9000": (3, 2), 'Host.OpSys == "LINUX"': (1, 1), "8 CPUs": (1, 0),
    }  # fmt: skip
    assert found["conditions"][0]["values"] == [{"value": "8000", "hosts": 3}]


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (False, [("Host.Memory > 1", None)]),
        (True, [("Host.ErrorRate < 0.1", "Good"), ("Host.JobsToday > 0", "Good"),
                ("Host.Memory > 1", None)]),
    ],
)  # fmt: skip
def test_own_attributes_and_what_the_bot_decides_are_seen_through(
    tail: bool, expected: list[tuple[str, str | None]]
) -> None:
    good = "Good = Host.ErrorRate < 0.1 && (Host.JobsToday > 0);"
    for requirement in ("!Tail || Good", "Tail ? Good : true", "(Good || !BOT.Tail)"):
        policy = f"{good} JobRequirements = ({requirement}) && Host.Memory > 1"
        assert texts(policy, tail) == expected


def test_the_nearest_miss_names_the_host_and_what_it_has() -> None:
    wanted = demand("JobRequirements = Host.Memory >= 9000 && Host.ErrorRate < 0.05")
    found = explained(wanted, host("far"), host("near", ErrorRate=0.01, Memory=8900))
    assert found["nearest"][0] == {
        "host": "near", "fails": [{"text": "Host.Memory >= 9000", "has": "8900"}],
    }  # fmt: skip
    assert [fail["has"] for fail in found["nearest"][1]["fails"]] == ["8000", "0.1"]


def test_a_clause_that_compares_nothing_shows_the_attributes_that_it_read() -> None:
    found = explained(demand('JobRequirements = regexp("^my", Host.Name)'), host("alpha"))
    assert found["nearest"][0]["fails"] == [
        {"text": 'regexp("^my", Host.Name)', "has": 'Host.Name = "alpha"'}
    ]


def test_relaxing_names_the_limits_at_which_one_half_and_all_would_pass() -> None:
    policy = '// big\nJobRequirements = Host.Memory > 9000 && Host.OpSys == "LINUX";\nRank = 1;'
    hosts = [host(Memory=memory) for memory in (8000, 4000, 2000, 1000)]
    found = explained(demand(policy), *hosts, host(OpSys="WINDOWS", Memory=1))
    assert [(item["text"], item["hosts"]) for item in found["changes"]] == [
        ("Host.Memory >= 8000", 1), ("Host.Memory >= 4000", 2), ("Host.Memory >= 1000", 4),
    ]  # fmt: skip
    change = found["changes"][1]
    assert change["policy"] == policy.replace("Host.Memory > 9000", "Host.Memory >= 4000")
    assert explained(demand(change["policy"]), *hosts)["hosts_matching"] == change["hosts"]


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ("Host.ErrorRate < 0.1", "Host.ErrorRate <= 0.124"),
        ("0.1 > Host.ErrorRate", "Host.ErrorRate <= 0.124"),
        ("Host.Memory / 1000.0 >= 9", "Host.Memory / 1000.0 >= 8.12"),
    ],
)
def test_a_limit_is_rounded_so_that_the_host_still_passes(condition: str, text: str) -> None:
    known = host(ErrorRate=0.12345, Memory=8123)
    change = explained(demand(f"JobRequirements = {condition}"), known)["changes"][0]
    assert change["text"] == text
    assert explained(demand(change["policy"]), known)["hosts_matching"] == 1


def test_a_resource_is_relaxed_by_submitting_again() -> None:
    change = explained(demand(memory_mb=9000), host())["changes"][0]
    assert (change["text"], change["submit"], change["policy"]) == (
        "8000 MB memory", "--memory 8000", None,
    )  # fmt: skip


def test_what_its_owner_can_change_is_named_first_where_two_reject_as_many() -> None:
    stranger = replace(host(), owner=OTHER, trusts=[OTHER])
    wanted = demand("JobRequirements = Host.Memory > 9000", cpus=8)
    reason = survey([stranger], wanted).reason
    assert reason == "the policy's condition Host.Memory > 9000 is not satisfied (1 host)"
    assert survey([stranger], demand(cpus=8)).reason.startswith("a job needs 8 CPUs")
    assert "whose key the client does not trust" in survey([stranger], demand()).reason


def test_of_several_clients_of_a_host_the_best_one_counts() -> None:
    known = host()
    stranger = replace(known, owner=OTHER)
    assert survey([stranger, known], demand()).hosts_matching == 1
    found = explained(demand(cpus=8), stranger, known)
    assert counts(found) == {"8 CPUs": (1, 1)}


def hidden(**ad: Any) -> HostClient:
    said = {"Name": "secret", "Owner": "bob", "Requirements": 'BOT.Owner =!= "dave"', **ad}
    return replace(host(None, **said), owner=OWNER)


@pytest.mark.parametrize(
    "clause",
    [
        'substr(Host.Name, 0, 1) != "s"',
        "size(Host.Name) >= 99",
        'Target["name"] == "x"',
        '(Host.Owner == "alice" ? 1 : Host.Owner == "bob" ? 2 : 3) >= 10',
        "size(Mine) >= 99",
        'eval("Host.Owner") == "x"',
        'Host.Requirements == ""',
        "size(string(Host.Requirements)) >= 99",
    ],
)
def test_what_a_stranger_may_not_know_of_a_host_is_not_broken_down(clause: str) -> None:
    known, other = hidden(), hidden(Name="sam", Owner="carol", Requirements="true")
    wanted = demand(f"Mine = Host.Name; JobRequirements = {clause}")
    found = explained(wanted, known)
    assert [fail["text"] for fail in found["nearest"][0]["fails"]] == ["JobRequirements"]
    told = explained(wanted, replace(known, attributes=other.attributes))
    assert found["nearest"] == told["nearest"]
    assert found["changes"] == []
    assert "secret" not in str(found["nearest"])


def test_secrets_of_a_host_change_nothing_but_whether_it_matches() -> None:
    policy = """
        JobRequirements = substr(Host.Name, 0, 1) == "x" && Host.Owner == "y" && Host.Memory > 9000;
        Concurrency = Host.Owner == "bob" ? 0 : 5;
    """
    told = [
        {key: value for key, value in explained(demand(policy), known).items() if key != "nearest"}
        for known in (hidden(), hidden(Name="x", Owner="y", Requirements=None))
    ]
    assert told[0] == told[1]
    assert counts(told[0]) == {"Host.Memory > 9000": (1, 1)}


def test_its_real_name_and_owner_decide_whether_a_hidden_host_matches() -> None:
    policy = 'JobRequirements = Host.Name == "secret" && Host.Owner == "bob"'
    assert explained(demand(policy), hidden())["hosts_matching"] == 1
    assert explained(demand(policy), hidden(Name="other"))["hosts_matching"] == 0


def test_of_ones_own_hosts_the_name_and_the_owner_are_shown() -> None:
    found = explained(demand('JobRequirements = Host.Owner == "y"'), host(Owner="alice"))
    assert found["nearest"][0]["fails"] == [{"text": 'Host.Owner == "y"', "has": '"alice"'}]


def test_a_host_that_writes_its_attributes_otherwise_spoils_no_explanation() -> None:
    odd = HostClient(99, {"NAME": "x", "owner": "bob", "NumCpus": 4}, OWNER, [], [OWNER], 2)
    found = explained(demand("JobRequirements = Host.NumCpus > 5"), odd, host())
    assert counts(found) == {"Host.NumCpus > 5": (2, 2)}
    assert "bob" not in str(found)


@pytest.mark.parametrize("memory", [1e-320, -1e-320, 5e-324, float("-inf"), -1.5e300, 1e-9])
@pytest.mark.parametrize("sign", [">= 100", "<= -100"])
def test_a_host_with_an_odd_number_spoils_no_explanation(memory: float, sign: str) -> None:
    found = explained(demand(f"JobRequirements = Host.Flops {sign}"), host(Flops=memory))
    for change in found["changes"]:
        again = explained(demand(change["policy"]), host(Flops=memory))
        assert again["hosts_matching"] == 1
    explained(demand(memory_mb=100), host(Memory=memory))


@pytest.mark.parametrize(
    "clause",
    ["Host.LoadAvg < 0.5", "Quiet", "Host.ClockMin > 60 && Host.Memory > 1", "!Host.OnBattery"],
)
def test_a_condition_on_what_hosts_tell_only_when_they_ask_says_so(clause: str) -> None:
    policy = f"Quiet = Target.LoadAvg * 2 < 1; JobRequirements = {clause}"
    found = explained(demand(policy), host())
    assert found["conditions"][0]["values"] == [
        {"value": "known only while the host asks", "hosts": 1}
    ]
    assert "is known only while the host asks (1 host)" in found["verdict"]
    nothing = explained(demand("JobRequirements = Host.Colour < 0.5"), host())
    assert nothing["conditions"][0]["values"] == [{"value": "undefined", "hosts": 1}]


def test_a_requirement_that_only_fails_as_a_whole_is_named_as_a_whole() -> None:
    numbers = f"Numbers = {{ {', '.join(['1'] * 450)} }};"
    parts = " && ".join(f"sum(Numbers) > {n}" for n in range(30))
    policy = f"{numbers} JobRequirements = Host.Memory > 1 && {parts}"
    found = explained(demand(policy), host())
    assert counts(found) == {"JobRequirements": (1, 1)}


@pytest.mark.parametrize(
    ("changes", "hosts", "verdict"),
    [
        ({}, [host()], "no problem: 1 host can run it, and 1 may get a job"),
        ({"state": "done"}, [host()], "the BOT is done: it has no unsent jobs"),
        ({"state": "cancelled"}, [], "the BOT is cancelled"),
        ({"state": "open"}, [host()], "the BOT is open: its submission is not complete"),
        ({}, [], "no known host can run it now: no client has asked for work in the last day"),
        ({"unsent": 0, "running": 2}, [host()],
         "no unsent jobs: 2 replicas in progress"),
        ({}, [replace(host(), running=8), replace(host(), silent=True)],
         "2 hosts can run it, but none is certain to get a job now: 1 holds as many replicas as"
         " Concurrency allows, 1 has not asked"),
        ({"rivals": [demand("Rank = 5")]}, [host()],
         "1 host can run it, but none is certain to get a job now: 1 serves another BOT first,"
         " whose Rank is higher"),
        ({"rivals": [demand("Rank = 5; JobRequirements = false")]}, [host()], "no problem"),
    ],
)  # fmt: skip
def test_the_verdict_says_plainly_what_holds_the_bot_up(
    changes: dict[str, Any], hosts: list[HostClient], verdict: str
) -> None:
    assert explained(demand(), *hosts, **changes)["verdict"].startswith(verdict)


def test_what_takes_too_long_is_broken_off_and_says_so() -> None:
    looks = itertools.count()
    found = explanation(
        demand("JobRequirements = false"), [host() for _ in range(9)], standing(),
        is_enough=lambda: next(looks) > 40,
    )  # fmt: skip
    assert 0 < found["hosts_known"] < 9
    assert found["hosts_left_out"]


def test_a_host_whose_conditions_were_not_all_looked_at_is_left_out() -> None:
    wanted = demand("JobRequirements = " + " && ".join(["Host.Memory > 9000"] * 20))
    found = explanation(wanted, [host()], standing(), is_enough=itertools.chain(
        [False] * 10, itertools.repeat(True)).__next__)  # fmt: skip
    assert (found["hosts_known"], found["hosts_left_out"]) == (0, True)


def test_what_hosts_have_and_what_would_help_is_not_sought_when_time_is_up() -> None:
    found = judge(conditions(demand("JobRequirements = Host.Memory > 9000")),
                  [(1, Known(host(), demand()))], lambda _: False)  # fmt: skip
    assert found.explain().obstacles[0].relaxed
    late = found.explain(lambda: True)
    assert [(item.rejects, item.values, item.relaxed) for item in late.obstacles] == [(1, [], [])]
    assert late.nearest[0].fails == []


def test_very_many_clauses_are_told_apart_only_as_far_as_people_read() -> None:
    clauses = [f"Host.Flops > {n}" for n in range(300)]
    wanted = demand(f"JobRequirements = {' && '.join(clauses)}")
    found = explained(wanted, host(Flops=20))
    assert len(found["conditions"]) == 31
    assert found["nearest"][0]["fails"][-1] == {
        "text": "the 250 conditions behind the first 50", "has": "not Host.Flops > 50",
    }  # fmt: skip
    assert explained(wanted, host(Flops=300))["hosts_matching"] == 1


def test_no_single_condition_takes_more_than_bounded_work() -> None:
    numbers = f"S = sum({{ {','.join(['1'] * 3000)} }});"
    wanted = demand(f"{numbers} JobRequirements = {'&&'.join(['S>0'] * 1200)}")
    for item in conditions(wanted):
        assert calls(partial(item.meets, Known(host(), wanted))) < 20 * DEFAULT_LIMITS.steps


def test_many_clauses_and_hosts_are_left_off_soon_after_it_is_enough() -> None:
    wanted = demand("JobRequirements = " + "&&".join(["a>1"] * 2700))
    hosts = [host() for _ in range(500)]
    for asks in (0, 50, 500):
        patience = itertools.chain([False] * asks, itertools.repeat(True))
        explain = partial(explanation, wanted, hosts, standing(), is_enough=patience.__next__)
        assert calls(explain) < 500_000 + 2_000 * asks


def test_the_line_of_a_long_condition_is_short() -> None:
    wanted = demand(f"JobRequirements = Host.Memory > 1{' + 1' * 100} + 9000")
    assert len(survey([host()], wanted).reason) < 160


def test_a_policy_of_many_alternatives_is_explained_soon_and_without_recursion() -> None:
    policy = "JobRequirements = " + " || ".join(["(Tail && Host.Memory == 1)"] * 500)
    found = explained(demand(policy), host())
    assert found["conditions"][0]["rejects"] == 1


def relaxed(found: dict[str, Any]) -> list[tuple[str, int]]:
    return [(item["text"], item["hosts"]) for item in found["changes"]]


def test_what_fails_together_is_relaxed_together() -> None:
    policy = "JobRequirements = Host.Memory >= 9000 && Host.ErrorRate < 0.1; Rank = 1"
    hosts = [host(Memory=memory, ErrorRate=rate) for memory, rate in
             ((8000, 0.2), (4000, 0.1), (2000, 0.3), (600, 0.05))]  # fmt: skip
    found = explained(demand(policy), *hosts)
    assert relaxed(found) == [
        ("Host.Memory >= 600", 1),
        ("Host.Memory >= 8000 and Host.ErrorRate <= 0.2", 1),
        ("Host.Memory >= 4000 and Host.ErrorRate <= 0.2", 2),
        ("Host.Memory >= 2000 and Host.ErrorRate <= 0.3", 3),
    ]
    assert [item["conditions"] for item in found["changes"]] == [1, 2, 2, 2]
    for change in found["changes"]:
        assert explained(demand(change["policy"]), *hosts)["hosts_matching"] == change["hosts"]
    assert found["changes"][1]["instead_of"] == "Host.Memory >= 9000 and Host.ErrorRate < 0.1"


def test_a_pair_also_helps_hosts_that_fail_only_one_of_the_two() -> None:
    policy = "JobRequirements = Host.Memory >= 9000 && Host.NumCpus >= 8"
    hosts = [host(Memory=1000), host(Memory=9000), host(NumCpus=16)]
    found = explained(demand(policy), *hosts)
    assert relaxed(found)[-1] == ("Host.Memory >= 1000 and Host.NumCpus >= 4", 3)


def test_a_policy_and_a_resource_are_relaxed_together_by_a_new_submission() -> None:
    found = explained(demand("JobRequirements = Host.NumCpus > 9", memory_mb=9000), host())
    (change,) = found["changes"]
    assert (change["text"], change["submit"]) == (
        "Host.NumCpus >= 4 and 8000 MB memory", "--memory 8000",
    )  # fmt: skip
    assert change["policy"] == "JobRequirements = Host.NumCpus >= 4"


def test_what_cannot_be_relaxed_is_not_relaxed_together_with_something_else() -> None:
    policy = 'JobRequirements = Host.Memory > 9000 && Host.OpSys == "PLAN9"'
    assert explained(demand(policy), host())["changes"] == []


def test_what_a_policy_asks_twice_is_one_change() -> None:
    policy = "JobRequirements = Host.Memory > 9000 && Host.Memory > 9000"
    found = explained(demand(policy), host())
    assert relaxed(found) == [("Host.Memory >= 8000", 1)]
    assert found["changes"][0]["policy"] == policy.replace("> 9000", ">= 8000")


BUSY = "LoadAvg < 0.5"


@pytest.mark.parametrize(
    ("hosts", "verdict"),
    [
        ([host(Requirements=BUSY)],
         "1 host can run it, but none is certain to get a job now: 1 takes it only while its"
         " owner's Requirements are satisfied, by load or clock: LoadAvg < 0.5"),
        ([host(Requirements=BUSY), host(Requirements=BUSY), host()],
         "no problem: 3 hosts can run it, and 1 may get a job at the next request; 2 take it"
         " only while their owners' Requirements are satisfied, by load or clock: LoadAvg < 0.5"),
        ([host(None, Requirements=BUSY)],
         "1 host can run it, but none is certain to get a job now: 1 takes it only while its"
         " owner's Requirements are satisfied, by load or clock"),
    ],
)  # fmt: skip
def test_a_host_whose_owner_may_refuse_the_bot_at_times_is_named(
    hosts: list[HostClient], verdict: str
) -> None:
    found = explained(demand(), *hosts)
    assert found["verdict"] == verdict
    assert (found["hosts_undecided"], found["hosts_free"]) == (
        len([known for known in hosts if "Requirements" in known.attributes]),
        len([known for known in hosts if "Requirements" not in known.attributes]),
    )


def test_of_ones_own_host_the_clause_that_refuses_is_shown() -> None:
    refusing = "BOT.JobsLeft > 10 && LoadAvg < 0.5 && BOT.Tail"
    found = explained(demand(), host(Requirements=refusing))
    assert found["conditions"][0]["values"] == [
        {"value": "BOT.JobsLeft > 10, BOT.Tail", "hosts": 1}
    ]
    stranger = explained(demand(), host(None, Requirements=refusing))
    assert stranger["conditions"][0]["values"] == [{"value": "no", "hosts": 1}]


def stock(**ad: Any) -> HostClient:
    return host(**{"IsBoinc": True, "Platforms": "linux-x86_64", **ad})


def test_stock_clients_are_judged_as_dispatch_judges_them() -> None:
    wanted = demand()
    found = explained(wanted, stock(), stock(), host())
    assert (found["hosts_matching"], found["hosts_stock"], found["hosts_stock_matching"]) == (
        1, 2, 0,
    )  # fmt: skip
    reason = "the BOT is not signed for stock BOINC clients: gridbot app sign 7 --boinc-key FILE"
    assert counts(found) == {reason: (2, 2)}
    assert survey([stock()], wanted).reason == f"{reason} (1 host)"
    because = replace(wanted, boinc_unsuitable="its program is too large")
    assert survey([stock()], because).reason == (
        "the BOT is unsuitable for stock BOINC clients: its program is too large (1 host)"
    )
    offered = replace(wanted, stock_platforms=("linux-x86_64",))
    match = survey([stock(), stock(Platforms="windows-x86_64"), host()], offered)
    assert (match.hosts_stock, match.hosts_stock_matching, match.hosts_matching) == (2, 1, 2)
    assert survey([stock(Platforms="windows-x86_64")], offered).reason == (
        "a job needs BOINC platform linux-x86_64, the host has another (1 host)"
    )


def test_a_stock_client_runs_what_is_signed_for_it_whoever_owns_it() -> None:
    stranger = replace(stock(), owner=OTHER)
    offered = replace(demand(), stock_platforms=("linux-x86_64",))
    assert survey([stranger], offered).hosts_matching == 1
    assert survey([stranger], demand()).reason.startswith("the BOT is not signed for stock")


@pytest.mark.parametrize(
    ("known", "verdict"),
    [
        (host(), "no problem: alpha can run it, and may get a job at the next request"),
        (replace(host(), running=9),
         "alpha can run it, but gets no job now: it holds as many replicas as Concurrency allows"),
        (host(Requirements=BUSY),
         "alpha can run it, but gets no job now: it takes it only while its owner's"
         " Requirements are satisfied, by load or clock: LoadAvg < 0.5"),
        (stock(Memory=10),
         "alpha cannot run it now: a job needs 512 MB memory, the host has less; the BOT is not"
         " signed for stock BOINC clients: gridbot app sign 7 --boinc-key FILE"),
    ],
)  # fmt: skip
def test_one_host_is_told_all_that_keeps_the_bot_away(known: HostClient, verdict: str) -> None:
    found = host_explanation(demand(), [known], standing())
    assert found["verdict"] == verdict
    assert found["host"]["is_boinc"] == known.is_stock


def test_a_host_whose_owner_refuses_the_bot_is_said_to_refuse_it() -> None:
    refusing = host(Requirements="BOT.JobsLeft > 10")
    depends_on_its_load = host(Requirements="LoadAvg < 0.5")
    found = survey([refusing, depends_on_its_load], demand())
    assert (found.hosts_known, found.hosts_matching) == (2, 1)
    refused = survey([refusing], demand())
    assert refused.reason == ("the host owner's Requirements reject the BOT (1 host)")
