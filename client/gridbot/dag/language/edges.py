"""Commands that join nodes: PARENT … CHILD, and the pins of splices."""

from __future__ import annotations

from gridbot.dag.language.draft import Splice
from gridbot.dag.language.lines import DagLine, Words
from gridbot.dag.language.model import DagNode, Kind
from gridbot.dag.language.part import DagPart, LineRefused


def parent(part: DagPart, line: DagLine, words: Words) -> None:
    """Join all parents with all children."""
    _parent(part, line, words, weak=False)


def weak(part: DagPart, line: DagLine, words: Words) -> None:
    """Join them so that the children need the parents' end, not their success."""
    if part.needed(words, "PARENT").upper() != "PARENT":
        raise LineRefused("write WEAK PARENT P CHILD C")
    _parent(part, line, words, weak=True)


def _parent(part: DagPart, line: DagLine, words: Words, weak: bool) -> None:
    names = words.all()
    at = next((n for n, word in enumerate(names) if word.upper() == "CHILD"), None)
    if at is None:
        raise LineRefused("CHILD is missing")
    if at == 0:
        raise LineRefused("no node stands before CHILD")
    if not names[at + 1 :]:
        raise LineRefused("no node stands behind CHILD")
    parents = _reached(part, names[:at], last=True)
    children = _reached(part, names[at + 1 :], last=False)
    if part.reading.join_nodes and not weak and len(parents) > 1 and len(children) > 1:
        part.draft.joins += 1
        join = f"_condor_join_node{part.draft.joins}"
        part.draft.nodes[join] = DagNode(join, Kind.JOIN, "", part.at(line), noop=True)
        part.draft.join(parents, [join], weak=False)
        parents = [join]
    part.draft.join(parents, children, weak)


def _reached(part: DagPart, names: list[str], last: bool) -> list[str]:
    """Nodes that edges from or to these names reach, once each."""
    found = dict[str, None]()
    for name in names:
        full = part.prefix + name
        if splice := part.draft.splices.get(full):
            found |= dict.fromkeys(splice.terminal if last else splice.initial)
            continue
        node = part.draft.nodes.get(full)
        if node is None or "+" in name:
            raise LineRefused(f"{name} is no node")
        if node.is_aside:
            raise LineRefused(f"{name} is a {node.kind.value} node, which has no edges")
        found[full] = None
    return list(found)


def pin_in(part: DagPart, line: DagLine, words: Words) -> None:
    """Number an input of a DAG that will be a splice."""
    _pin(part, line, words, part.draft.pins_in)


def pin_out(part: DagPart, line: DagLine, words: Words) -> None:
    """Number an output of a DAG that will be a splice."""
    _pin(part, line, words, part.draft.pins_out)


def _pin(part: DagPart, line: DagLine, words: Words, pins: dict[int, list[str]]) -> None:
    del line
    node = part.node(words)
    number = part.integer(words, "a pin's number", 1)
    if node not in (named := pins.setdefault(number, [])):
        named.append(node)


def connect(part: DagPart, line: DagLine, words: Words) -> None:
    """Join the outputs of a splice with the inputs of another, pin by pin."""
    del line
    names = [part.needed(words, "a splice") for _ in range(2)]
    first, second = (_splice(part, name) for name in names)
    outs, ins = first.pins_out, second.pins_in
    if not outs or outs.keys() != ins.keys() or sorted(outs) != list(range(1, len(outs) + 1)):
        raise LineRefused(
            f"{names[0]} has the output pins {sorted(outs)}, {names[1]} the input pins"
            f" {sorted(ins)}; both must be 1, 2, … without a gap"
        )
    pinned = {node for nodes in ins.values() for node in nodes}
    if loose := [node for node in second.initial if node not in pinned]:
        raise LineRefused(f"{loose[0]} begins {names[1]} and has no input pin")
    for number, nodes in outs.items():
        part.draft.join(nodes, ins[number], weak=False)


def _splice(part: DagPart, name: str) -> Splice:
    found = part.draft.splices.get(part.prefix + name)
    if found is None:
        raise LineRefused(f"{name} is no splice")
    return found
