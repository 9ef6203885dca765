from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gridbot_policies import Ads
from gridbot_policies.classad import ERROR, Record, Value, evaluate, parse, record, record_of
from gridbot_policies.classad.compiler import Evaluator, compile_attributes
from gridbot_policies.classad.nodes import Attribute, RecordNode
from gridbot_policies.classad.parser import parse_definitions
from gridbot_policies.classad.values import ListValue
from gridbot_policies.policy.ads import LAYOUT


class Walked(Exception):
    """The compiled code asked the walker."""


def own_ad(text: str) -> Record:
    return record_of(RecordNode(parse_definitions(text)))


def ad(text: str) -> Record:
    node = parse(text)
    assert isinstance(node, RecordNode)
    return record_of(node)


def walked(own: Record, ads: Ads, name: str = "Rank") -> Value:
    return evaluate(Attribute(name), own.within(ads.scope), now=ads.now)


def compiled(own: Record, never_walk: bool = False) -> Evaluator | None:
    def walk(name: str, ads: Ads) -> Value:
        if never_walk:
            raise Walked(name)
        return walked(own, ads, name)

    return compile_attributes(["Rank"], own.attributes, LAYOUT, walk).get("Rank")


def plain(value: Value) -> Any:
    """A form in which values compare as the language's identity does; nan equals itself."""
    if isinstance(value, ListValue):
        return tuple(plain(item) for item in value.items)  # type: ignore[arg-type]
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (value, math.copysign(1, value))
    return value.names if isinstance(value, Record) else (type(value), value)


HOST = record(
    {
        "Name": "myhost17",
        "NumCpus": 4,
        "Memory": 8192,
        "ErrorRate": 0.02,
        "OpSys": "LINUX",
        "IsPilot": True,
        "Huge": 2**53 + 1,
        "Gpu": {"Memory": 4096, "Name": "T4"},
        "Tags": ["ssd", "fast"],
        "Infinite": math.inf,
        "Nan": math.nan,
    }
)
BOT = record({"Name": "scan", "JobsLeft": 10, "Tail": True, "MeanTurnaround": 100.0})
QUEUE = record({"BOTsInQueue": 2})
JOB = record({"Age": 7.5, "NumberOfReplicas": 1, "Replica1": {"Host": {"ErrorRate": 0.5}}})
ADS = Ads(HOST, BOT, QUEUE, now=1_600_000_000.0)
WITH_REPLICA = Ads(HOST, BOT, QUEUE, JOB, now=1_600_000_000.0)
# A host that describes itself by expressions: whatever touches one is the walker's business.
LIVELY = Ads(ad('[NumCpus = 2 + 2; Memory = NumCpus * 1024; Name = "x"; Tags = {1}]'), BOT, QUEUE)


@pytest.mark.parametrize(
    "text",
    [
        "Rank = Host.Memory",
        "Rank = TARGET.Memory >= 4096 && TARGET.OpSys == \"linux\"",
        "Rank = MY.JobsLeft + BOT.JobsLeft - Queue.BOTsInQueue * 2",
        "Rank = !Tail ? true : regexp(\"myhost\", Host.Name) && Host.ErrorRate < 0.1",
        "Rank = Host.Nothing > 3 || Host.NumCpus > 3",
        "Rank = Host.Nothing ?: 5",
        "Rank = Job.Replica1.Host.ErrorRate > 0.1 && NumberOfReplicas < 3",
        "Rank = min({Job.Replica1.Host.ErrorRate, Job.Replica2.Host.ErrorRate, 3})",
        "Rank = Twice * Twice; Twice = 2 * Host.NumCpus",
        "Rank = ifThenElse(isUndefined(Host.Nothing), 1, 2)",
        "Rank = Host.Gpu.Memory / 3.0",
        "Rank = time() - 5 + CurrentTime",
        "Rank = member(\"ssd\", Host.Tags)",
        "Rank = Host.IsPilot =!= true",
        "Rank = Host.Name =?= undefined",
    ],
)  # fmt: skip
def test_what_policies_commonly_do_is_compiled_and_agrees_with_the_walker(text: str) -> None:
    own = own_ad(text)
    evaluator = compiled(own, never_walk=True)
    assert evaluator is not None
    for ads in (ADS, WITH_REPLICA):
        assert plain(evaluator(ads)) == plain(walked(own, ads))


@pytest.mark.parametrize(
    "text",
    [
        "Rank = Rank + 1",
        "Rank = Other; Other = Rank ?: 3",
        "Rank = [a = 1].a",
        "Rank = .Host.Memory",
        "Rank = parent.JobsLeft",
        "Rank = {1, 2}[0]",
    ],
)
def test_what_only_the_walker_knows_is_not_compiled(text: str) -> None:
    assert compiled(own_ad(text)) is None


@pytest.mark.parametrize(
    "text",
    [
        "Rank = Host.NumCpus",
        "Rank = Host.NumCpus * 2",
        "Rank = Host.NumCpus > 3",
        "Rank = Host.NumCpus is undefined",
        "Rank = Host.NumCpus ?: 3",
        "Rank = isUndefined(Host.Memory)",
        "Rank = Host.Memory && true",
        "Rank = Host.Memory > 5000 ? 1 : Host.NumCpus",
        "Rank = sum(Host.Tags) + Host.Memory",
        "Rank = -Host.NumCpus",
        'Rank = eval("Host.NumCpus + 1")',
    ],
)
def test_an_expression_in_an_ad_is_evaluated_by_the_walker(text: str) -> None:
    own = own_ad(text)
    evaluator = compiled(own)
    assert evaluator is not None
    assert plain(evaluator(LIVELY)) == plain(walked(own, LIVELY))


@pytest.mark.parametrize("depth", [12, 60])
def test_own_attributes_that_double_the_work_end_as_an_error(depth: int) -> None:
    chain = "; ".join(f"A{i} = A{i - 1} + A{i - 1}" for i in range(1, depth))
    own = own_ad(f"A0 = Host.NumCpus; {chain}; Rank = A{depth - 1}")
    evaluator = compiled(own)
    value = walked(own, ADS) if evaluator is None else evaluator(ADS)
    assert plain(value) == plain(walked(own, ADS))


@pytest.mark.parametrize("length", [50, 150, 390])
def test_attributes_that_lead_through_many_others_end_as_the_walker_ends_them(length: int) -> None:
    chain = "; ".join(f"A{n} = A{n + 1} + 1" for n in range(length))
    own = own_ad(f"Rank = A0; {chain}; A{length} = Host.NumCpus")
    evaluator = compiled(own)
    value = walked(own, ADS) if evaluator is None else evaluator(ADS)
    assert plain(value) == plain(walked(own, ADS))


def test_what_the_walkers_budget_does_not_allow_is_not_allowed_when_compiled() -> None:
    host = HOST.holding("Long", "x" * 4000)
    costly = "; ".join(
        f"B{n} = size(strcat({', '.join(['Host.Long'] * 15)})) > 0" for n in range(8)
    )
    own = own_ad(f"Rank = {' && '.join(f'B{n}' for n in range(8))}; {costly}")
    ads = Ads(host, BOT, QUEUE)
    evaluator = compiled(own)
    assert evaluator is not None
    assert plain(evaluator(ads)) == plain(walked(own, ads)) == plain(ERROR)


def test_long_strings_are_compared_by_the_walker_which_counts_them() -> None:
    own = own_ad('Rank = Host.Name == BOT.Name || Host.Name == "' + "y" * 100 + '"')
    ads = Ads(HOST.holding("Name", "x" * 100), BOT.holding("Name", "X" * 100), QUEUE)
    evaluator = compiled(own)
    assert evaluator is not None
    assert evaluator(ads) is True
    never = compiled(own, never_walk=True)
    assert never is not None
    with pytest.raises(Walked):
        never(ads)


def test_long_chains_are_compiled_without_deep_recursion() -> None:
    own = own_ad("Rank = Host.NumCpus" + " + 1" * 150)
    evaluator = compiled(own, never_walk=True)
    assert evaluator is not None
    assert evaluator(ADS) == 154


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 90 + "Tail" + ")" * 90,
        "!" * 100 + "Tail",
        "Host" + ".Host" * 3000,
        " && ".join(f"Host.A{n} > {n}" for n in range(900)),
    ],
)
def test_what_is_very_deep_or_long_is_left_to_the_walker(expression: str) -> None:
    assert compiled(own_ad(f"Rank = {expression}")) is None


LEAVES = st.sampled_from(
    [
        "true", "false", "undefined", "error", "0", "1", "-3", "9007199254740993",
        "9223372036854775807", "0.5", "-0.0", "1e308", "2.5e-320", '""', '"LINUX"', '"linux"',
        "Host.Name", "Host.NumCpus", "Host.Memory", "TARGET.ErrorRate", "Host.OpSys",
        "Host.IsPilot", "Host.Huge", "Host.Gpu", "Host.Gpu.Memory", "Host.Tags", "Host.Infinite",
        "Host.Nan", "Host.Nothing", "Host.Tail", "Host.Host", "Tail", "MY.Tail", "JobsLeft",
        "BOT.Tail", "BOT.Name", "Name", "MeanTurnaround", "Queue.BOTsInQueue", "Job.Age", "Age",
        "NumberOfReplicas", "Job.Replica1.Host.ErrorRate", "Replica1.Host.ErrorRate",
        "Job.Replica2.Age", "Mine", "MINE", "Deeper", "Circle", "CurrentTime", "time()",
        "Mine.x", "{1, Tail}", "Concurrency", "Host", "self.Tail",
    ]
)  # fmt: skip


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = [
        "+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "<", "<=", ">", ">=", "==", "!=",
        "=?=", "=!=", "is", "isnt", "&&", "||",
    ]  # fmt: skip
    binary = st.builds(
        lambda a, op, b: f"({a}) {op} ({b})", inner, st.sampled_from(operators), inner
    )
    chain = st.builds(
        lambda op, parts: f" {op} ".join(f"({part})" for part in parts),
        st.sampled_from(["&&", "||", "+", "<"]),
        st.lists(inner, min_size=2, max_size=5),
    )
    return st.one_of(
        binary,
        chain,
        st.builds(lambda op, a: f"{op}({a})", st.sampled_from(["!", "-", "+", "~"]), inner),
        st.builds(lambda a, b, c: f"({a}) ? ({b}) : ({c})", inner, inner, inner),
        st.builds(lambda a, b: f"({a}) ?: ({b})", inner, inner),
        st.builds(lambda a, b, c: f"ifThenElse({a}, {b}, {c})", inner, inner, inner),
        st.builds(
            lambda f, a: f"{f}({a})",
            st.sampled_from(["isUndefined", "isError", "int", "real", "string", "size", "floor"]),
            inner,
        ),
        st.builds(
            lambda f, a, b: f"{f}({a}, {b})",
            st.sampled_from(["strcat", "member", "regexp", "stringListMember", "pow", "nothing"]),
            inner,
            inner,
        ),
        st.builds(
            lambda pattern, a: f'regexp("{pattern}", {a})',
            st.sampled_from(["host", "^my", "^host", "17$", "h.*7", "", "(", "^"]),
            inner,
        ),
        st.builds(
            lambda f, items: f"{f}({{{', '.join(items)}}})",
            st.sampled_from(["min", "max", "sum", "size", "avg"]),
            st.lists(inner, max_size=3),
        ),
    )  # fmt: skip


EXPRESSIONS = st.recursive(LEAVES, _combined, max_leaves=12)


@settings(max_examples=1500, deadline=None)
@given(EXPRESSIONS, EXPRESSIONS)
@example("Tail + true", "0")
@example("Host.Name == 'x'", "0")
def test_compiled_code_gives_what_the_walker_gives(expression: str, other: str) -> None:
    own = own_ad(
        f"Rank = {expression}; Mine = {other}; Deeper = Mine; Circle = Circle; Concurrency = 2"
    )
    evaluator = compiled(own)
    if evaluator is not None:
        for ads in (ADS, WITH_REPLICA, LIVELY):
            assert plain(evaluator(ads)) == plain(walked(own, ads))
