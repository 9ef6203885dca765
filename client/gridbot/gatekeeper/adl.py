"""Job descriptions in ADL, the XML that ARC's clients send whatever they were given.  Pure.

EMI-ES Activity Description Language, with NorduGrid's extensions; names count, their namespaces
do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from gridbot.api.errors import BadInput
from gridbot.gatekeeper.descriptions import JobDescription, SentFile, checked

_MB = 1024 * 1024
_MOST_DEPTH = 20
_MOST_NUMBER = 10**15
# What says nothing of a run here.
_IGNORED = {
    "Application": {"ExpirationTime", "LoggingDirectory", "Notification", "RemoteLogging",
                    "WipeTime", "Rerun", "Priority", "Annotation"},
    "Resources": {"IndividualVirtualMemory", "NetworkInfo", "NodeAccess", "Platform",
                  "OperatingSystem"},
    "DataStaging": {"ClientDataPush", "DelegationID"},
}  # fmt: skip


def parsed(text: str) -> Element:
    """The root of a document without a DTD.  Raises BadInput."""
    parser = ElementTree.XMLParser(target=_Bounded())  # noqa: S314 (no DTD, bounded depth)
    try:
        parser.feed(text)
        root: Element = parser.close()
    except ElementTree.ParseError as error:
        raise BadInput(f"not valid XML: {error}") from None
    return root


class _Bounded(ElementTree.TreeBuilder):
    """Builds shallow documents: a deep one would exhaust the stack where it is written again."""

    depth = 0

    def start(self, tag: str, attrs: dict[str, str], /) -> Element:
        self.depth += 1
        if self.depth > _MOST_DEPTH:
            raise BadInput(f"XML: more than {_MOST_DEPTH} elements within each other")
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        self.depth -= 1
        return super().end(tag)

    def doctype(self, name: str, *_: str | None) -> None:
        """Refuse what may define entities."""
        raise BadInput(f"XML: a document type, {name[:60]}, is not read")


def name_of(element: Element) -> str:
    """The name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def children(element: Element, *path: str) -> Iterator[Element]:
    """The elements at a path of names below an element."""
    for child in element:
        if name_of(child) == path[0]:
            if path[1:]:
                yield from children(child, *path[1:])
            else:
                yield child


def text_at(element: Element, *path: str) -> str:
    """The text of the first element at a path; empty if there is none."""
    return next(((found.text or "").strip() for found in children(element, *path)), "")


def jobs_in(root: Element) -> list[Element]:
    """The descriptions in a document: one, or several in `ActivityDescriptions`."""
    if name_of(root) == "ActivityDescriptions":
        return list(children(root, "ActivityDescription"))
    return [root]


def described(root: Element) -> JobDescription:
    """The job of an `ActivityDescription`.  Raises BadInput that names the element."""
    if name_of(root) != "ActivityDescription":
        raise BadInput(f"ADL: {name_of(root)[:60]}: expected ActivityDescription")
    for part, known in _KNOWN.items():
        for element in children(root, part):
            if strange := next((name for name in map(name_of, element) if name not in known), None):
                raise BadInput(f"ADL: {part}/{strange[:60]} cannot be said of a job here")
    application = next(children(root, "Application"), Element("Application"))
    resources = next(children(root, "Resources"), Element("Resources"))
    slots = _number(resources, "SlotRequirement", "NumberOfSlots") or 1
    executable = text_at(application, "Executable", "Path")
    return checked(
        JobDescription(
            executable=executable,
            arguments=tuple(
                found.text or "" for found in children(application, "Executable", "Argument")
            ),
            name=text_at(root, "ActivityIdentification", "Name"),
            inputs=tuple(_input(item) for item in children(root, "DataStaging", "InputFile")),
            outputs=tuple(_output_names(root, text_at(application, "LoggingDirectory"))),
            stdin=text_at(application, "Input"),
            stdout=text_at(application, "Output"),
            stderr=text_at(application, "Error"),
            environment={
                text_at(item, "Name"): next(
                    (found.text or "" for found in children(item, "Value")), ""
                )
                for item in children(application, "Environment")
            },
            slots=slots,
            memory_mb=_megabytes(resources, "IndividualPhysicalMemory"),
            disk_mb=_megabytes(resources, "DiskSpaceRequirement"),
            seconds=_seconds(resources, slots),
            queue=text_at(resources, "QueueName"),
        )
    )


_KNOWN = {
    "Application": _IGNORED["Application"]
    | {"Executable", "Input", "Output", "Error", "Environment"},
    "Resources": _IGNORED["Resources"]
    | {"SlotRequirement", "IndividualPhysicalMemory", "DiskSpaceRequirement", "QueueName"}
    | {"WallTime", "TotalCPUTime", "IndividualCPUTime"},
    "DataStaging": _IGNORED["DataStaging"] | {"InputFile", "OutputFile"},
}


def _input(item: Element) -> SentFile:
    name = text_at(item, "Name")
    if source := text_at(item, "Source", "URI"):
        raise BadInput(
            f"ADL: InputFile {name[:60]} from {source[:60]}: only files that the client sends are"
            " taken here"
        )
    return SentFile(name, text_at(item, "IsExecutable") == "true")


def _output_names(root: Element, logs: str) -> Iterator[str]:
    """Files to keep; A-REX's own logs of a job are none."""
    for item in children(root, "DataStaging", "OutputFile"):
        name = text_at(item, "Name")
        if target := text_at(item, "Target", "URI"):
            raise BadInput(
                f"ADL: OutputFile {name[:60]} to {target[:60]}: outputs are kept here until the"
                " client fetches them"
            )
        if name != logs:
            yield name


def _seconds(resources: Element, slots: int) -> int | None:
    """The limit of wall clock time; of a job that has none, that of CPU time for each slot."""
    total = _number(resources, "TotalCPUTime")
    return (
        _number(resources, "WallTime")
        or _number(resources, "IndividualCPUTime")
        or (math.ceil(total / slots) if total else None)
    )


def _megabytes(resources: Element, name: str) -> int | None:
    found = _number(resources, name)
    return math.ceil(found / _MB) if found else None


def _number(element: Element, *path: str) -> int | None:
    text = text_at(element, *path)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) <= _MOST_NUMBER):
        raise BadInput(f"ADL: {'/'.join(path)} {text[:60]!r}: expected a whole number")
    return int(text)
