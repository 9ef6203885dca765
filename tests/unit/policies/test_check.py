from __future__ import annotations

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.work import calls

from gridbot.api.findings import finding_page
from gridbot_policies import PolicySet, examples
from gridbot_policies.classad.nodes import walk
from gridbot_policies.classad.source import Source
from gridbot_policies.lint.check import Finding, check, warnings
from gridbot_policies.policy.policy_set import MAX_POLICY_BYTES

EXAMPLES = [examples.text(name) for name in examples.names()]


def only(text: str) -> Finding:
    found = check(text)
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize("text", EXAMPLES, ids=examples.names())
def test_the_examples_give_no_reason_for_doubt(text: str) -> None:
    assert check(text) == []


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("Rank = 1;\nDeadline = (2;\n", (2, 14), "expected ')', found ';'"),
        ("JobRequirement = 1", (1, 1), "there is no policy JobRequirement; did you mean JobRequir"),
        ("A = 1;\n  a = 2;", (2, 3), "a is defined twice, first in line 1"),
        ("x = " + "1 + " * 5000 + "1", (1, 1), "the policy has "),
    ],
)
def test_what_the_server_refuses_is_an_error_with_its_place(
    text: str, place: tuple[int, int], message: str
) -> None:
    found = only(text)
    assert (found.severity, (found.line, found.column)) == ("error", place)
    assert found.message.startswith(message)


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("Rank = Host.JobToday", 8, "Host.JobToday is not published; did you mean Host.JobsToday?"),
        ("Rank = TARGET.Wings", 8, "TARGET.Wings is not published"),
        ("Rank = Job.Replica1.Host.Memory", 8, "Job.Replica1.Host.Memory is not published"),
        ("Rank = Job.Replica12.Ages", 8,
         "Job.Replica12.Ages is not published; did you mean Job.Replica12.Age?"),
        ("Rank = 1 + Queue.BotsInQeue", 12,
         "Queue.BotsInQeue is not published; did you mean Queue.BOTsInQueue?"),
        ("Rank = Memory", 8, "nothing is called Memory here; did you mean Host.Memory?"),
        ("Rank = Jobleft", 8, "nothing is called Jobleft here; did you mean JobsLeft?"),
        ("Fast = 1; Rank = Fats", 18, "nothing is called Fats here; did you mean Fast?"),
        ("Rank = Zzz", 8, "nothing is called Zzz here, so it is undefined"),
        ("Rank = Host.OpSys == 'LINUX' ? 1 : 0", 22,
         "'LINUX' is the name of an attribute; a string is written \"LINUX\""),
        ("Rank = regex(\"a\", Host.Name)", 8,
         "there is no function regex(); did you mean regexp()?"),
        ("Rank = frobnicate(1)", 8,
         "there is no function frobnicate(); calling it is an error"),
        ("Rank = regexp(\"a\")", 8,
         "regexp() takes 2 to 3 arguments, not 1; calling it so is an error"),
        ("Rank = regexp(\"(?=a)\", Host.Name) ? 1 : 0", 8,
         "the pattern \"(?=a)\" is an error: look-ahead (?=…)"),
        ("Rank = size()", 8, "size() takes 1 argument, not 0; calling it so is an error"),
        ("Rank = Host.Memory == \"8192\" ? 1 : 0", 8,
         "Host.Memory is a number and \"8192\" is a string: an error to compare; write 8192"),
        ("Rank = 5 < Host.OpSys ? 1 : 0", 8,
         "Host.OpSys is a string and 5 is none: an error to compare; write \"5\""),
        ("Rank = Tail =?= \"yes\" ? 1 : 0", 8,
         "Tail is true or false and \"yes\" is a string: never equal"),
        ("Rank = Host.Memory > 5 & Tail ? 1 : 0", 8,
         "& works on the bits of whole numbers; conditions are joined with &&"),
        ("ReplicationRequirements = Host.Memory > 1", 27, "ReplicationRequirements sees no Host"),
        ("GridPolicy = Host.Memory > 1", 14, "GridPolicy sees no Host; the grid's ad is Grid"),
        ("JobRequirements = Grid.Name == \"x\"", 19, "JobRequirements sees no Grid"),
        ("JobRequirements = Tail && false", 27,
         "JobRequirements can never hold: this part is always false"),
        ("JobRequirements = 1 > 2", 19, "JobRequirements can never hold: it is always false"),
        ("JobRequirements = \"true\"", 19,
         "JobRequirements can never hold: it is always a string, no condition"),
        ("Off = 0; JobRequirements = Tail && (Off && Tail)", 7,
         "JobRequirements can never hold: this part is always 0"),
        ("GridPolicy = undefined", 14, "GridPolicy can never hold: it is always undefined"),
        ("JobRequirements = Host.Memory > 10 && Tail && 5 >= host.memory", 47,
         "JobRequirements can never hold: no host has host.memory > 10 and host.memory <= 5"),
        ("Concurrency = 1 - 1", 15, "Concurrency is always 0: no host would be given a job"),
        ("Deadline = -1", 12, "Deadline is always -1: the default of 86400 s counts"),
        ("Rank = \"high\"", 8, "Rank is always \"high\": it counts as 0"),
    ],
)  # fmt: skip
def test_what_is_legal_but_hardly_meant_is_a_warning(text: str, column: int, message: str) -> None:
    found = only(text)
    assert (found.severity, found.line, found.column) == ("warning", 1, column)
    assert found.message.startswith(message)


@pytest.mark.parametrize(
    "text",
    [
        "Mine = [ a = 3; b = a ].b; Rank = Mine",
        "JobRequirements = Host.Memory >= 5 && Host.Memory <= 5",
        "JobRequirements = Host.Memory > 1 && Host.Memory < 2",
        "JobRequirements = time() > 5",
        "ReplicationRequirements = false",
        "Rank = CurrentTime + self.Concurrency + TARGET.Memory",
        "JobRequirements = Host.Memory > 5.5 && Host.IsPilot == true && Host.OpSys == \"LINUX\"",
        "Concurrency = Host.NumCpus - Host.NumCpus",
        "Rank = 6 & 3",
        "JobRequirements = Host.PythonVersion =?= \"3.11\"",
    ],
)  # fmt: skip
def test_what_can_be_meant_is_not_doubted(text: str) -> None:
    assert check(text) == []


def test_several_warnings_come_in_the_order_of_the_text() -> None:
    text = "JobRequirements = Host.A1 > 3 &&\n  Host.B1 > 2;\nRank = Host.A1 + Host.A1"
    places = [(found.line, found.column) for found in check(text)]
    assert places == [(1, 19), (2, 3), (3, 8), (3, 18)]


def test_every_node_of_the_examples_is_found_in_its_text() -> None:
    for text in EXAMPLES:
        source = Source.of_definitions(text)
        for definition in source.definitions:
            assert all(id(node) in source.spans for node in walk(definition.expression))


@pytest.mark.parametrize(
    "text",
    [
        "- 5 + x.y.z[\"a\"  \"b\"] =?= { 1, f(2;3) } ?: [ a = 1;; b = 0.10 ; ]",
        "a is b isnt 'c d' || !(.x) && ~-3 >>> 2",
        "c ? absTime(\"2020-01-01\") : relTime(5) ? \"\\\"\" : -.5e3",
    ],
)  # fmt: skip
def test_parts_are_shown_as_they_were_written(text: str) -> None:
    source = Source.of_expression(text)
    assert source.expression is not None
    assert source.shown(source.expression) == text
    assert all(source.shown(node) in text for node in walk(source.expression))


def test_what_is_shown_has_neither_comments_nor_line_breaks() -> None:
    source = Source.of_expression("Host.Memory // of this host\n  >= 0.10 /* a */ * 4")
    assert source.expression is not None
    assert source.shown(source.expression) == "Host.Memory >= 0.10 * 4"


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_finding_fits_the_terminal_and_its_caret_stands_under_the_place(width: int) -> None:
    text = f"JobRequirements = {'Tail || ' * 30}\tHost.Memroy > 5{' || Tail' * 30};"
    lines = click.unstyle(finding_page("p.ad", only(text), width)).splitlines()
    place = next(number for number, line in enumerate(lines) if line.strip() == "^")
    assert lines[place - 1][lines[place].index("^") :].startswith("Host.Memroy")
    assert {*lines[place - 2].split(), *lines[place + 1].split()} <= set(text.split())
    assert max(map(len, lines)) <= width
    assert len(lines[place + 1 :]) == 1


def test_a_line_that_fits_is_not_wrapped_and_a_word_without_blanks_is_cut() -> None:
    text = "JobRequirements = Host.Memroy > 5;"
    assert finding_page("p.ad", only(text), 80).splitlines()[1:] == [f"  {text}", f"{' ' * 20}^"]
    found = check(f"{'x' * 50} = (")[0]
    assert finding_page("p.ad", found, 40).splitlines()[2:] == [
        f"  {'x' * 37}", f"  {'x' * 13} = (", f"{' ' * 19}^",
    ]  # fmt: skip


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.text(alphabet="Host.Mem ory=!&|<>()[]{};:?\"'\\+-*/1290truefalsTail\n,", max_size=60))
def test_any_text_can_be_checked(text: str) -> None:
    for whole in (text, f"JobRequirements = {text}"):
        lines = whole.count("\n") + 1
        assert all(1 <= found.line <= lines for found in check(whole))


_OWN = "".join(f"own{n} = 1;" for n in range(700))


@pytest.mark.parametrize(
    "text",
    [
        "JobRequirements = " + "&&".join(["a>1"] * 2700),
        "JobRequirements = " + "&&".join(f"Tail>{n % 9}&&Tail<0" for n in range(900)),
        "JobRequirements = x" + ".Replica1.q" * 1480,
        f"{_OWN} JobRequirements = {{ {','.join(f'owm{n}' for n in range(700))} }}",
        f"{_OWN} JobRequirements = {{ {','.join('own1 + 1' for _ in range(700))} }}",
        "A = " + "+".join(["1"] * 2400) + "; JobRequirements = " + "&&".join(["(A?:1)"] * 1200),
        "JobRequirements = " + "||".join(f'regexp("[^é]{{{n}}}",x)' for n in range(300, 900)),
        "JobRequirements = {" + ",".join(f"stringlistmembr{n}()" for n in range(700)) + "}",
        "JobRequirements = " + "&&".join(["q" * 4000] * 4),
        f'S = "{"é" * 3900}"; JobRequirements = {"&&".join(["(S==S)"] * 900)}',
    ],
    ids=range(10),
)
def test_a_text_of_any_kind_is_checked_with_bounded_work_and_in_few_words(text: str) -> None:
    policies = PolicySet.parse(text)
    assert calls(lambda: warnings(policies)) < 100 * MAX_POLICY_BYTES
    found = warnings(policies)
    assert len(found) <= 100
    assert max(map(len, found), default=0) < 400


def test_a_bound_contradicts_the_tightest_of_those_before_it() -> None:
    clauses = ["Host.Memory > 5", "Host.Memory < 90", "Host.Memory >= 50", "Host.Memory > 50"]
    assert check(f"JobRequirements = {' && '.join(clauses)}") == []
    for bound, against in (("<= 50", "> 50"), ("== 5", "> 50"), (">= 90", "< 90")):
        found = only(f"JobRequirements = {' && '.join(clauses)} && Host.Memory {bound}")
        assert found.message.endswith(f"no host has Host.Memory {against} and Host.Memory {bound}")


def test_a_long_name_is_cut_in_the_message() -> None:
    assert only(f"Rank = {'q' * 500}").message == (
        f"nothing is called {'q' * 79}… here, so it is undefined"
    )
    assert f"Host.{'q' * 79}… is not published" in only(f"Rank = Host.{'q' * 500}").message
