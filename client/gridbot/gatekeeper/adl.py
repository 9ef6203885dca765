"""Job descriptions in ADL, the XML to which ARC's clients convert all others.  Pure.

EMI-ES Activity Description Language, with NorduGrid's extensions; names count, their namespaces
do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement
from xml.parsers import expat

from gridbot.api.errors import BadInput
from gridbot.gatekeeper.descriptions import MOST_CHARACTERS, JobDescription, SentFile

_MB = 1024 * 1024
_NAMESPACE = "http://www.eu-emi.eu/es/2010/12/adl"
_MOST_DEPTH = 20
_MOST_ELEMENTS = 100_000
_MOST_NUMBER = 10**15
# Elements that do not change how a job runs here.
_IGNORED = {
    "Application": {"ExpirationTime", "LoggingDirectory", "Notification", "RemoteLogging",
                    "WipeTime", "Rerun", "Priority", "Annotation"},
    "Resources": {"IndividualVirtualMemory", "NetworkInfo", "NodeAccess", "Platform",
                  "OperatingSystem"},
    "DataStaging": {"ClientDataPush", "DelegationID"},
}  # fmt: skip


def parsed(text: str) -> Element:
    """The root of a document without a DTD, in local names, without attributes.

    Time and memory are in proportion to the length of the text.  Raises BadInput.
    """
    builder = _BoundedBuilder()
    parser = expat.ParserCreate()  # without a copy of the namespace in each name
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = builder.doctype
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise BadInput(f"not valid XML: {error}") from None
    return builder.document[0]


class _BoundedBuilder:
    """Builds shallow documents: a deep one would exhaust the stack where it is written again."""

    def __init__(self) -> None:
        self.document = Element("")
        self._open = [self.document]
        self._count = 0

    def start(self, name: str, _: object) -> None:
        """Begin an element."""
        self._count += 1
        if self._count > _MOST_ELEMENTS:
            raise BadInput(f"XML: more than {_MOST_ELEMENTS} elements")
        if len(self._open) > _MOST_DEPTH:
            raise BadInput(f"XML: more than {_MOST_DEPTH} elements within each other")
        local = name.rpartition(":")[2]
        if not (local.isascii() and local[:1].isalpha()):
            raise BadInput(f"XML: {name[:60]}: no usable name of an element")
        self._open.append(SubElement(self._open[-1], local))

    def end(self, _: str) -> None:
        """End the innermost element; text between elements is dropped."""
        ended = self._open.pop()
        if len(ended):
            ended.text = None

    def data(self, text: str) -> None:
        """Take in a piece of a text."""
        element = self._open[-1]
        if len(element):
            return
        element.text = (element.text or "") + text
        if len(element.text) > MOST_CHARACTERS:
            raise BadInput(f"XML: {element.tag[:60]}: more than {MOST_CHARACTERS} characters")

    def doctype(self, name: str, *_: object) -> None:
        """Refuse what may define entities."""
        raise BadInput(f"XML: document type {name[:60]}: not supported")


def written(job: Element) -> str:
    """The text of a description, from which the same is read."""
    named = Element(job.tag, {"xmlns": _NAMESPACE})
    named.text = job.text
    named.extend(job)
    # A reader of XML takes a bare carriage return for a newline.
    return ElementTree.tostring(named, "unicode").replace("\r", "&#13;")


def children(element: Element, *path: str) -> Iterator[Element]:
    """The elements at a path of names below an element."""
    for child in element:
        if child.tag == path[0]:
            if path[1:]:
                yield from children(child, *path[1:])
            else:
                yield child


def text_at(element: Element, *path: str) -> str:
    """The text of the first element at a path; empty if there is none."""
    return next(((found.text or "").strip() for found in children(element, *path)), "")


def jobs_in(root: Element) -> list[Element]:
    """The descriptions in a document: one, or several in `ActivityDescriptions`."""
    if root.tag == "ActivityDescriptions":
        return list(children(root, "ActivityDescription"))
    return [root]


def described(root: Element) -> JobDescription:
    """The job of an `ActivityDescription`.  Raises BadInput that names the element."""
    if root.tag != "ActivityDescription":
        raise BadInput(f"ADL: {root.tag[:60]}: expected ActivityDescription")
    for part, known in _KNOWN.items():
        for element in children(root, part):
            if unknown := next((item.tag for item in element if item.tag not in known), None):
                raise BadInput(f"ADL: {part}/{unknown[:60]} is not supported")
    application = next(children(root, "Application"), Element("Application"))
    resources = next(children(root, "Resources"), Element("Resources"))
    slots = _number(resources, "SlotRequirement", "NumberOfSlots") or 1
    executable = text_at(application, "Executable", "Path")
    return JobDescription(
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
            text_at(item, "Name"): next((found.text or "" for found in children(item, "Value")), "")
            for item in children(application, "Environment")
        },
        slots=slots,
        memory_mb=_megabytes(resources, "IndividualPhysicalMemory"),
        disk_mb=_megabytes(resources, "DiskSpaceRequirement"),
        seconds=_seconds(resources, slots),
        queue=text_at(resources, "QueueName"),
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
            f"ADL: InputFile {name[:60]} from {source[:60]}: URLs are not supported;"
            " the client sends input files"
        )
    return SentFile(name, text_at(item, "IsExecutable") in ("true", "1"))


def _output_names(root: Element, logs: str) -> Iterator[str]:
    """The output files, without the folder of A-REX's own logs."""
    for item in children(root, "DataStaging", "OutputFile"):
        name = text_at(item, "Name")
        if target := text_at(item, "Target", "URI"):
            raise BadInput(
                f"ADL: OutputFile {name[:60]} to {target[:60]}: URLs are not supported;"
                " the client fetches output files"
            )
        if name != logs:
            yield name


def _seconds(resources: Element, slots: int) -> int | None:
    """The limit of wall clock time; without one, that of CPU time for each slot."""
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
