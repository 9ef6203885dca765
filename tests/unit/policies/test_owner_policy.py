from __future__ import annotations

import pytest
from tests.work import calls

from gridbot_policies import SemanticError
from gridbot_policies.classad import CLIENT_LIMITS, ParseError, record
from gridbot_policies.policy.ads import SERVER_SIDE_ATTRIBUTES
from gridbot_policies.policy.owner import OwnerPolicy

HOST = record({"Name": "box", "NumCpus": 4, "LoadAvg": 2.0, "ClockMin": 600})
BOT = record({"Name": "scan", "Owner": "eve", "Signed": True, "JobsLeft": 3})
QUEUE = record({"BOTsInQueue": 2})


def accepts(text: str) -> bool | None:
    return OwnerPolicy.parse(text).accepts(HOST, BOT, QUEUE, 0.0)


def accepts_before(text: str) -> bool | None:
    """What the client can say before it knows the BOTs."""
    return OwnerPolicy.parse(text).accepts(HOST, now=0.0, unknown=SERVER_SIDE_ATTRIBUTES)


@pytest.mark.parametrize(
    "text",
    [
        "NumCpus == 4",
        "Host.NumCpus == 4 && MY.NumCpus == 4",
        'BOT.Owner == "eve" && TARGET.Owner == "eve"',
        "Queue.BOTsInQueue == 2",
        "Requirements = Day && Least < 5; Day = ClockMin > 300; Least = BOT.JobsLeft;",
        "[ NumCpus = 1; Requirements = NumCpus == 1 && Host.NumCpus == 4 ]",
        "7",
        "time() == 0",
    ],
)
def test_names_are_those_of_the_policy_the_host_and_the_bot(text: str) -> None:
    assert accepts(text) is True


def test_a_bare_name_is_never_the_bots() -> None:
    assert accepts("JobsLeft == 3") is False
    assert accepts("BOT.JobsLeft == 3") is True


@pytest.mark.parametrize(
    "text", ["false", "0", "Host.Colour == 1", '"true"', "1 / 0", "error", "undefined"]
)
def test_what_is_not_true_refuses_the_bot(text: str) -> None:
    assert accepts(text) is False
    assert accepts_before(text) is False


@pytest.mark.parametrize(
    ("text", "before"),
    [
        ("LoadAvg > 1.0", True),
        ("LoadAvg < 0.5", False),
        ('LoadAvg < 0.5 && BOT.Owner != "eve"', False),
        ('BOT.Owner != "eve" && (LoadAvg < 0.5)', False),
        ("Idle = LoadAvg < 0.5; Requirements = BOT.Signed && Idle", False),
        ('LoadAvg > 0.5 && BOT.Owner != "eve"', None),
        ('LoadAvg > 0.5 || BOT.Owner != "eve"', True),
        ('BOT.Owner =?= "alice"', None),
        ("isUndefined(BOT.Owner) ? false : true", None),
        ('BOT["Owner"] == "alice"', None),
        ("TARGET.Signed", None),
        ("Queue.BOTsInQueue < 1", None),
        ("Running < 5", None),
        ('Owner == "alice"', None),
    ],
)
def test_before_the_bot_is_known_only_what_cannot_change_is_said(
    text: str, before: bool | None
) -> None:
    assert accepts_before(text) is before


def test_attributes_that_are_not_known_now_leave_the_answer_open() -> None:
    policy = OwnerPolicy.parse('LoadAvg < 0.5 && BOT.Owner != "mallory"')
    assert policy.accepts(HOST, BOT, QUEUE, unknown=("LoadAvg",)) is None
    policy = OwnerPolicy.parse('LoadAvg < 0.5 && BOT.Owner != "eve"')
    assert policy.accepts(HOST, BOT, QUEUE, unknown=("LoadAvg",)) is False


def test_the_obstacle_is_the_clause_as_its_author_wrote_it() -> None:
    policy = OwnerPolicy.parse(
        "Requirements = NumCpus > 2 && Idle && BOT.Signed;\nIdle = LoadAvg\n  < 0.5;  // HTCondor's"
    )
    assert policy.obstacle(HOST, 0.0) == "LoadAvg < 0.5"
    assert policy.obstacle(HOST.holding("LoadAvg", 0.1), 0.0) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("LoadAvg < ", "line 1, column 11: expected an expression, found the end of the text"),
        ("", "expected an expression"),
        ("Requirements = true;\nX = 5 5", "line 2, column 7"),
        ('"' + "x" * 4095 + '"', "expected a text of at most 4096 bytes, found 4097 bytes"),
    ],
)
def test_a_text_that_does_not_parse_is_refused_with_the_place(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        OwnerPolicy.parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("LoadAvg = 0.5", "the policy defines LoadAvg, but not Requirements: write Requirements"),
        ("Requirement = true", "no Requirement; did you mean Requirements?"),
        ("JobRequirements = true", "no JobRequirements; did you mean Requirements?"),
        ("[]", "defines nothing, but not Requirements"),
        ("Requirements = 1;\nrequirements = 2;", "line 2, column 1: requirements is defined twice"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused(text: str, message: str) -> None:
    with pytest.raises(SemanticError, match=message):
        OwnerPolicy.parse(text)


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ('BOT.Ownr != "eve"', "BOT.Ownr is not published; did you mean BOT.Owner?"),
        ("Host.LoadAverage < 1", "Host.LoadAverage is not published; did you mean Host.LoadAvg?"),
        ("MY.NumCpu > 1", "MY.NumCpu is not published; did you mean MY.NumCpus?"),
        ("ClockMinute > 5", "ClockMinute is no attribute of the host or the policy; did you mean"),
        ("BOT.Owner != eve", "eve is no attribute of the host or the policy"),
    ],
)
def test_names_that_nobody_publishes_are_warned_of(text: str, warning: str) -> None:
    (found,) = OwnerPolicy.parse(text).warnings()
    assert found.startswith(warning)


def test_names_that_are_published_give_no_warning() -> None:
    text = "Least = 2; Requirements = BOT.Signed && MY.Least < numcpus && OnBattery =!= true"
    assert OwnerPolicy.parse(text).warnings() == []


_DOUBLING = "".join(f"x{n + 1} = strcat(x{n}, x{n}); " for n in range(60))


@pytest.mark.parametrize(
    "text",
    [
        "Requirements = " + " && ".join(f"A{n}" for n in range(2)) + ";"
        + "".join(f"A{n} = A{n + 1} && A{n + 1} && B; " for n in range(60)) + "B = true;",
        f'x0 = "0123456789"; {_DOUBLING} Requirements = x60 == x60;',
        "Requirements = Requirements && Requirements",
        "eval(Host.Requirements)",
        'regexp("(a*)*b", "' + "a" * 3000 + '")',
        "Requirements = " + "(" * 160 + "BOT.Signed" + ")" * 160,
        "Requirements = " + "!" * 480 + "Missing",
    ],
)  # fmt: skip
def test_a_hostile_text_refuses_within_its_budget(text: str) -> None:
    policy = OwnerPolicy.parse(text)
    host = HOST.holding("Requirements", text)
    assert policy.accepts(host, BOT, QUEUE) is False
    assert calls(lambda: policy.accepts(host, BOT, QUEUE)) < 10 * CLIENT_LIMITS.steps
    assert calls(lambda: policy.accepts(host)) < 10 * CLIENT_LIMITS.steps


def test_what_takes_more_than_the_budget_is_left_to_the_server() -> None:
    clause = f"Long = {' + '.join(['size(Name)'] * 30)} < 1000;"
    assert accepts_before(f"{clause} Requirements = Long && ClockMin < 5") is False
    assert accepts_before(f"{clause} Requirements = {'Long && ' * 100} ClockMin < 5") is None
