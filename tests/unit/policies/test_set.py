from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridbot_policies import Ads, PolicySet, SemanticError
from gridbot_policies.classad import ParseError, evaluate, parse, record
from gridbot_policies.policy.ads import (
    BOT_ATTRIBUTES,
    HOST_ATTRIBUTES,
    JOB_ATTRIBUTES,
    QUEUE_ATTRIBUTES,
    REPLICA_ATTRIBUTES,
    REPLICA_HOST_ATTRIBUTES,
    UNSEEN_HOST,
)
from gridbot_policies.policy.policy_set import DEFAULTS, MAX_RANK

HOST = record({"Name": "h1", "NumCpus": 4, "ErrorRate": 0.02, "JobsToday": 7})
BOT = record({"Name": "scan", "JobsLeft": 10, "Tail": True, "MeanTurnaround": 100.0, "Age": 5000})
QUEUE = record({"BOTsInQueue": 2})
ADS = Ads(host=HOST, bot=BOT, queue=QUEUE)


def with_job(**attributes: object) -> Ads:
    return Ads(host=HOST, bot=BOT, queue=QUEUE, job=record(attributes))


def test_an_empty_text_means_all_defaults() -> None:
    policies = PolicySet.parse("")
    assert policies.requirements(ADS) is True
    assert policies.rank(ADS) == 0.0
    assert policies.concurrency(ADS) == 8
    assert policies.deadline(ADS) == 86_400.0
    assert policies.wants_replica(ADS) is False
    assert policies.accepts_grid(record({"Name": "cluster"}), BOT, QUEUE) is True
    assert policies.looks_at_replicas is False


def test_the_default_replicates_a_slow_job_once_and_only_in_the_tail() -> None:
    policies = PolicySet.parse("")
    slow, quick = {"Age": 301, "NumberOfReplicas": 1}, {"Age": 299, "NumberOfReplicas": 1}
    assert policies.wants_replica(with_job(**slow)) is True
    assert policies.wants_replica(with_job(**quick)) is False
    assert policies.wants_replica(with_job(**{**slow, "NumberOfReplicas": 2})) is False
    in_bulk = Ads(HOST, BOT.holding("Tail", False), QUEUE, record(slow))
    assert policies.wants_replica(in_bulk) is False


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Rank = JobsLeft", 10.0),
        ("Rank = BOT.JobsLeft + Queue.BOTsInQueue", 12.0),
        ("Rank = Tail ? Host.JobsToday : 0", 7.0),
        ("Rank = Job.NumberOfReplicas + NumberOfReplicas", 4.0),
        ("Rank = Job.Replica1.Host.JobsToday", 3.0),
        ("Rank = Job.Replica2.Host.JobsToday ?: -1", -1.0),
        ("Weight = 5; Rank = Weight * 2", 10.0),
        ("Rank = Concurrency", 8.0),
        ("RANK = 3", 3.0),
        ("[ Rank = 3; ]", 3.0),
    ],
)
def test_names_resolve_in_the_policies_the_job_the_bot_and_outside(
    text: str, expected: float
) -> None:
    job = with_job(NumberOfReplicas=2, Replica1={"Host": {"JobsToday": 3}})
    assert PolicySet.parse(text).rank(job) == expected


def test_deadline_may_use_concurrency_given_or_default() -> None:
    assert PolicySet.parse("Deadline = Concurrency * 2000").deadline(ADS) == 16_000.0
    given = PolicySet.parse("Concurrency = 1; Deadline = Concurrency * 2000")
    assert given.deadline(ADS) == 2_000.0


@pytest.mark.parametrize("missing", sorted(set(REPLICA_HOST_ATTRIBUTES)))
def test_a_replicas_host_is_never_taken_for_the_host_that_asks(missing: str) -> None:
    host = record(dict.fromkeys(HOST_ATTRIBUTES, 1))
    bot = record({"Name": "scan", "Owner": "ada", "MeanTurnaround": 100.0})
    policies = PolicySet.parse(f"JobRequirements = Job.Replica1.Host.{missing} =?= undefined")
    without_host = record({"NumberOfReplicas": 1, "Replica1": {"Name": "r1"}})
    with_empty_host = record({"NumberOfReplicas": 1, "Replica1": {"Name": "r1", "Host": {}}})
    assert policies.requirements(Ads(host, bot, QUEUE, without_host)) is True
    assert policies.requirements(Ads(host, bot, QUEUE, with_empty_host)) is True


def test_a_jobs_missing_age_is_not_the_bots() -> None:
    assert PolicySet.parse("Rank = Job.Age").rank(with_job(NumberOfReplicas=1)) == 0.0
    assert PolicySet.parse("Rank = Job.Age").rank(ADS) == 0.0


@pytest.mark.parametrize(
    ("expression", "satisfied"),
    [
        ("true", True),
        ("2", True),
        ("-0.5", True),
        ("0", False),
        ("false", False),
        ("undefined", False),
        ("Host.Unknown > 3", False),
        ("error", False),
        ('"true"', False),
        ("{true}", False),
    ],
)
def test_only_true_and_numbers_but_zero_satisfy(expression: str, satisfied: bool) -> None:
    for policy in ("JobRequirements", "ReplicationRequirements", "GridPolicy"):
        policies = PolicySet.parse(f"{policy} = {expression}")
        answer = {
            "JobRequirements": policies.requirements(ADS),
            "ReplicationRequirements": policies.wants_replica(ADS),
            "GridPolicy": policies.accepts_grid(record({}), BOT, QUEUE),
        }[policy]
        assert answer is satisfied, policy


@pytest.mark.parametrize(
    ("expression", "rank", "concurrency", "deadline"),
    [
        ("2.9", 2.9, 2, 2.9),
        ("true", 1.0, 1, 1.0),
        ("-5", -5.0, 0, 86_400.0),
        ("0", 0.0, 0, 86_400.0),
        ("undefined", 0.0, 0, 86_400.0),
        ('"many"', 0.0, 0, 86_400.0),
        ('real("NaN")', 0.0, 0, 86_400.0),
        ("1e308", MAX_RANK, 10_000, 31_536_000.0),
        ('real("-INF")', -MAX_RANK, 0, 86_400.0),
        ("0.001", 0.001, 0, 1.0),
    ],
)
def test_numbers_stay_within_their_bounds(
    expression: str, rank: float, concurrency: int, deadline: float
) -> None:
    assert PolicySet.parse(f"Rank = {expression}").rank(ADS) == rank
    assert PolicySet.parse(f"Concurrency = {expression}").concurrency(ADS) == concurrency
    assert PolicySet.parse(f"Deadline = {expression}").deadline(ADS) == deadline


@pytest.mark.parametrize(
    ("text", "looks"),
    [
        ("Rank = Host.Name == BOT.Name", False),
        ("Rank = NumberOfReplicas", True),
        ("Rank = job.replica1.host.errorrate", True),
        ("Concurrency = BOT.Job.Age", True),
        ("JobRequirements = Replica1 =?= undefined", True),
        ("Rank = Mine; Mine = Other; Other = Job.Name", True),
        ("Unused = Job.Name", False),
        ("ReplicationRequirements = NumberOfReplicas < 3", False),
        ("Deadline = parent.x", True),
        ('Rank = eval("Job" )', True),
        ('Rank = BOT["Job"].Age', True),
        ("Rank = Rank2; Rank2 = Rank", False),
        ("JobRequirements = MY.Age > 100", True),
        ('Rank = self.Name == "x"', True),
        ("Rank = {self}[0].Age", True),
        ('Rank = TARGET.Name == "x" && Queue.Name is undefined', False),
    ],
)
def test_it_is_known_which_policies_look_at_replicas(text: str, looks: bool) -> None:
    assert PolicySet.parse(text).looks_at_replicas is looks


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "JobRequirement = true",
            "line 1, column 1: there is no policy JobRequirement; did you mean JobRequirements?",
        ),
        ("A = 1;\n Requirements = true", "line 2, column 2: there is no policy Requirements"),
        ("Concurency = 2", "did you mean Concurrency?"),
        ("Ranks = 2", "did you mean Rank?"),
        ("ReplicaRequirements = true", "did you mean ReplicationRequirements?"),
        ("Rank = 1;\n rank = 2", "line 2, column 2: rank is defined twice, first in line 1"),
        ("mine = 1; Mine = 2", "Mine is defined twice"),
        ("A = 1;" + " " * 16_384, "the policy has 16390 bytes; at most 16384 are allowed"),
    ],
)
def test_a_text_that_cannot_be_meant_is_refused(text: str, message: str) -> None:
    with pytest.raises(SemanticError) as caught:
        PolicySet.parse(text)
    assert message in str(caught.value)


def test_a_syntax_error_keeps_its_line_and_column() -> None:
    with pytest.raises(ParseError, match="line 2, column 11: expected an expression, found ';'"):
        PolicySet.parse("Rank = 1;\nDeadline =;")


@pytest.mark.parametrize("name", ["Rank2", "MyRank", "Reliable", "MyDeadline"])
def test_names_of_the_owners_own_are_welcome(name: str) -> None:
    assert PolicySet.parse(f"{name} = 3; Rank = {name}").rank(ADS) == 3.0


def test_the_grid_policy_sees_the_grid_and_the_bot_but_no_host() -> None:
    policies = PolicySet.parse('GridPolicy = Grid.Name == "osg" && JobsLeft > 5')
    assert policies.accepts_grid(record({"Name": "OSG"}), BOT, QUEUE) is True
    assert policies.accepts_grid(record({"Name": "egee"}), BOT, QUEUE) is False
    nothing = PolicySet.parse("GridPolicy = isUndefined(Host)")
    assert nothing.accepts_grid(record({}), BOT, QUEUE) is True


def test_time_functions_see_the_time_of_the_ads() -> None:
    at_noon = Ads(HOST, BOT, QUEUE, now=43_200.0)
    policies = PolicySet.parse("Rank = getHours(absTime(time()))")
    assert policies.rank(at_noon) == 12.0
    assert policies.rank(ADS) == 0.0


def test_an_ads_own_record_is_not_changed_by_being_used() -> None:
    before = dict(BOT.attributes)
    Ads(host=HOST, bot=BOT, queue=QUEUE, job=record({"NumberOfReplicas": 1}))
    assert BOT.attributes == before


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.text(), st.sampled_from(sorted(DEFAULTS)))
def test_any_text_is_refused_or_evaluates(text: str, policy: str) -> None:
    for whole in (text, f"{policy} = {text}"):
        try:
            policies = PolicySet.parse(whole)
        except (ParseError, SemanticError):
            continue
        assert 0 <= policies.concurrency(ADS) <= 10_000
        assert 1.0 <= policies.deadline(ADS) <= 31_536_000.0
        assert abs(policies.rank(ADS)) <= MAX_RANK


def test_the_layout_equals_the_one_written_out_as_a_single_ad() -> None:
    policies = "Rank = JobsLeft * 100 + NumberOfReplicas * 10 + Host.NumCpus"
    whole = evaluate(
        parse(
            "[Queue=[BOTsInQueue=2]; Host=[NumCpus=4]; BOT=[JobsLeft=10;"
            f" Job=[NumberOfReplicas=2; Eval=[{policies}]]]].BOT.Job.Eval.Rank"
        )
    )
    assert PolicySet.parse(policies).rank(with_job(NumberOfReplicas=2)) == whole == 1024


def test_a_host_that_publishes_nothing_gets_nothing_by_default() -> None:
    host = record(dict.fromkeys(HOST_ATTRIBUTES))
    assert PolicySet.parse("").concurrency(Ads(host, BOT, QUEUE)) == 0


def test_the_readme_lists_every_published_attribute() -> None:
    readme = (Path(__file__).parents[3] / "policies" / "README.md").read_text()
    published = (
        *HOST_ATTRIBUTES,
        *BOT_ATTRIBUTES,
        *QUEUE_ATTRIBUTES,
        *JOB_ATTRIBUTES,
        *REPLICA_ATTRIBUTES,
    )
    assert [name for name in published if f"`{name}`" not in readme] == []


@pytest.mark.parametrize("policy", sorted(DEFAULTS))
def test_the_readme_states_the_default_that_is_used(policy: str) -> None:
    readme = (Path(__file__).parents[3] / "policies" / "README.md").read_text()
    row = next(line for line in readme.splitlines() if line.startswith(f"| `{policy}` |"))
    assert row.endswith(f"| `{DEFAULTS[policy]}` |")


@pytest.mark.parametrize("walks", [1, 200])  # walked, then compiled
@pytest.mark.parametrize(
    ("policy", "found"),
    [
        ("", (True, 0.0)),
        ("Rank = !Tail ? 5 : Host.JobsToday", (True, 5.0)),
        ("Rank = Tail ? 5 : Host.JobsToday", None),
        ("JobRequirements = Tail && Host.NumCpus > 4; Rank = Host.NumCpus", (False, 0.0)),
        ("JobRequirements = Host.NumCpus > 4 && Tail", None),
        ("JobRequirements = target.NumCpus > 4", None),
        ("JobRequirements = size(Host) > 0", None),
        ('JobRequirements = eval(strcat("Host.", "NumCpus")) > 0', None),
        ("Own = Host.NumCpus; Rank = Own", None),
    ],
)
def test_policies_that_do_not_look_at_the_host_are_the_same_for_any(
    policy: str, found: tuple[bool, float] | None, walks: int
) -> None:
    policies, bot = PolicySet.parse(policy), record({"Tail": False})
    for _ in range(walks):
        assert policies.for_any_host(Ads(UNSEEN_HOST, bot, QUEUE)) == found


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("", False),
        ("Rank = !Tail ? 5 : Host.JobsToday; JobRequirements = BOT.Tail || Target.Memory > Need;"
         " Need = 5 * BOT.JobsLeft", False),
        ("Concurrency = Age; Deadline = time()", False),
        ("Rank = BOT.Age", True),
        ("Rank = age", True),
        ('Rank = BOT["a" + "ge"]', True),
        ('Rank = BOT["Age"]', True),
        ("Rank = size(string(BOT))", True),
        ("Rank = [x = BOT].x.Age", True),
        ("Rank = Queue.JobsInQueue", True),
        ("Rank = BOTsInQueue", True),
        ("JobRequirements = time() > 5", True),
        ("JobRequirements = Mine; Mine = Later; Later = CurrentTime > 5", True),
        ("JobRequirements = formatTime() == \"x\"", True),
        ('Rank = eval("Age")', True),
        ("Rank = MY.Age", True),
        ("Rank = .BOT.Age", True),
        ("Rank = parent.parent.Age", True),
    ],
)  # fmt: skip
def test_it_is_known_which_policies_change_though_nothing_of_the_bot_does(
    text: str, changes: bool
) -> None:
    assert PolicySet.parse(text).is_restless is changes


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("", True),
        ("replicationRequirements = FALSE;", False),
        ("ReplicationRequirements = false && true;", True),  # only a plain constant is seen
        ("ReplicationRequirements = 0;", False),
    ],
)
def test_a_policy_that_says_plainly_no_is_known_to_have_no_speculative_replicas(
    text: str, may: bool
) -> None:
    assert PolicySet.parse(text).may_replicate is may
