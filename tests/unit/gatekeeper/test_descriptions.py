"""Descriptions in ARC's two languages, and the BOTs that they become."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gridbot.api.errors import BadInput
from gridbot.api.submission import Submission, prepare
from gridbot.gatekeeper.descriptions import JobDescription, SentFile, streams, submission_fields
from gridbot.gatekeeper.reading import read, reread

DATA = Path(__file__).resolve().parents[2] / "data" / "arc"
ID = "0123456789abcdef0123456789abcdef"
JOB = JobDescription(
    executable="run.sh",
    arguments=("a b", "c"),
    name="try",
    inputs=(SentFile("run.sh", is_executable=True), SentFile("data/in.txt")),
    outputs=("out.txt", "res/"),
    stdin="data/in.txt",
    stdout="o.txt",
    stderr="e.txt",
    environment={"A": "b"},
    slots=2,
    memory_mb=300,
    disk_mb=2,
    seconds=600,
)
XRSL = (
    '&(executable=run.sh)(arguments="a b" c)(jobName=try)(inputFiles=("run.sh" "")'
    '("data/in.txt" "6.0a1b"))(outputFiles=("out.txt" "")("res/" ""))(stdin=data/in.txt)'
    "(stdout=o.txt)(stderr=e.txt)(environment=(A b))(count=2)(memory=300)(disk=2)(cpuTime=5)"
    '(wallTime=10)(gmlog=log)(lifeTime="2 days")'
)


def accepted(text: str) -> JobDescription:
    [asked] = read(text)
    if isinstance(asked.found, BadInput):
        raise asked.found
    return asked.found


def adl(application: str, rest: str = "") -> str:
    return (
        '<ActivityDescription xmlns="http://www.eu-emi.eu/es/2010/12/adl"><Application>'
        f"{application}</Application>{rest}</ActivityDescription>"
    )


def fields(job: JobDescription) -> dict[str, Any]:
    return submission_fields(job, ID, Path("/f"))


def test_what_arcsub_sends_is_the_job_that_its_user_described() -> None:
    sent = accepted((DATA / "arcsub.adl").read_text())
    # It names the streams as outputs, too.
    assert replace(sent, outputs=sent.outputs[:2]) == JOB
    assert sent.outputs[2:] == ("o.txt", "e.txt")
    assert accepted(XRSL) == JOB
    assert fields(sent) == fields(JOB)


@pytest.mark.parametrize(
    "text",
    [
        (DATA / "arcsub.adl").read_text(),
        XRSL,
        adl("<Executable><Path>a</Path><Argument>b&#13;\nc&#13;</Argument></Executable>"),
        "&(executable=a)(arguments='b\r\nc\r')",
    ],
)
def test_the_text_that_is_kept_of_a_job_gives_the_same_job(text: str) -> None:
    [asked] = read(text)
    assert reread(asked.text) == asked.found


def test_several_jobs_come_in_one_request_and_each_has_its_own_error() -> None:
    jobs = read("+(&(executable=/bin/a))(&(executable=/bin/b)(queue=fast))")
    assert [reread(jobs[0].text).executable, str(jobs[1].found)] == [
        "/bin/a",
        "queue fast: the only queue is gridbot",
    ]
    item = adl("<Executable><Path>/bin/a</Path></Executable>")
    assert len(read(f"<ActivityDescriptions>{item}{item}</ActivityDescriptions>")) == 2


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ('"2 hours"', 7200), ('"1d 6h"', 108_000), ("PT90M", 5400), ("P1DT1S", 86_401)],
)
def test_times_have_units_or_are_minutes(text: str, seconds: int) -> None:
    assert accepted(f"&(executable=/bin/a)(wallTime={text})").seconds == seconds


def test_of_a_job_without_wall_clock_time_the_cpu_time_of_a_slot_is_the_limit() -> None:
    assert accepted("&(executable=/bin/a)(cpuTime=5)").seconds == 300
    resources = (
        "<Resources><SlotRequirement><NumberOfSlots>2</NumberOfSlots></SlotRequirement>"
        "<TotalCPUTime>61</TotalCPUTime></Resources>"
    )
    assert accepted(adl("<Executable><Path>a</Path></Executable>", resources)).seconds == 31


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "was expected, not 'the end'"),
        ("&(arguments=a)", "executable is missing"),
        ("(executable=a)", r"was expected, not '\("),
        ("&(executable=a)(frob=1)", "frob = 1: not supported; there are"),
        ("&(executable=a)(runTimeEnvironment=ENV/PROXY)", "runTimeEnvironment = ENV/PROXY"),
        ("&(executable=a)(wallTime=soon)", "wallTime = soon"),
        ("&(executable=a)(wallTime=0)", "wallTime = 0"),
        ("&(executable=a)(wallTime=99999999999)", "wallTime = 99999999999"),
        ("&(executable=a)(count=0)", "count = 0"),
        ("&(executable=a)(count=1025)", "1025 slots, at most 1024"),
        (
            adl(
                "<Executable><Path>a</Path></Executable>",
                "<Resources><SlotRequirement><NumberOfSlots>12</NumberOfSlots></SlotRequirement>"
                f"<IndividualPhysicalMemory>{10**14}</IndividualPhysicalMemory></Resources>",
            ),
            r"memory_mb: 1144409184 is not in 1\.\.1073741824",
        ),
        (f"&(executable=a)(arguments={'x' * 9000})", "command: expected a string of at most 8192"),
        (f"&(executable=a)(arguments={'x ' * 1000})", "command: 1001 entries, at most 1000"),
        (f"&(executable=a)(environment=(A {'x' * 9000}))", "environment.A: expected a string"),
        ("&(executable=a)(environment=(a-b c))", "environment: 'a-b' is no name of a variable"),
        ("&(executable=a)(environment=(GRIDBOT_X c))", "environment: 'GRIDBOT_X' is no name"),
        (
            adl(
                "<Executable><Path>a</Path></Executable>"
                "<Environment><Name>1</Name><Value/></Environment>"
            ),
            "environment: '1' is no name of a variable",
        ),
        ("&(executable=a)(count>1)", "count > 1: expected = after count"),
        ("&(executable=a)(|(queue=a)(queue=b))", "alternatives are not supported"),
        ("&(executable=a)(join=maybe)", "join = maybe"),
        ("&(executable=a)(inputFiles=(x http://h/x))", "x from http://h/x"),
        ("&(executable=a)(outputFiles=(x http://h/x))", "x to http://h/x"),
        ("&(executable=a)(inputFiles=(../x ''))", r"\.\./x"),
        ("&(executable=a)(inputFiles=(/etc/x ''))", "/etc/x"),
        ("&(executable=a)(outputFiles=('' ''))", "output file"),
        ("&(executable=a)(stdout=../o)", r"\.\./o"),
        ("&(executable=a)(stdout=o/)", "stdout: 'o/' is not a usable file name"),
        ("&(executable=a)(stderr=/)", "stderr: '/' is not a usable file name"),
        ("&(executable=a)(stdin=x)", "stdin x: no input file"),
        (
            "&(executable=a)(outputFiles=('a=b' ''))",
            "output file a=b: the name of an output must not contain =",
        ),
        ("&(executable=a)(stdout='a=b')", "output file a=b"),
        ("&(executable=a)(outputFiles=(a '')(a/b/c ''))", "output file a/b/c: a is a file, not"),
        ("&(executable=a)(outputFiles=(a '')(a/ ''))", "output file a/: a is a file, not"),
        ("&(executable=a)(outputFiles=(a/b ''))(stderr=a)", "output file a/b: a is a file, not"),
        ("&(executable=a)(outputFiles=(a/b/ ''))(stderr=a/b)", "output file a/b/: a/b is a file"),
        ("&(executable=a)(stdout=a/b)(stderr=a)", "output file a/b: a is a file, not"),
        ("&(executable=a)(inputFiles=(a/b '')(a ''))", "input file a/b: a is a file, not"),
        ("&(executable=a)(outputFiles=(x.part '')(x ''))", "x.part: x has this name while"),
        ("&(executable=a)(outputFiles=(x.part ''))(stdout=x)", "x.part: x has this name while"),
        ("<a/>", "a: expected ActivityDescription"),
        ("<a", "not valid XML"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "document type a: not supported"),
        ("<a>" * 21, "more than 20 elements"),
        ("<a:1/>", "a:1: no usable name"),
        ("<a:/>", "a:: no usable name"),
        ("<ActivityDescriptions/>", "no description"),
        (adl("<Executable/>"), "executable is missing"),
        (adl("<PreExecutable/>"), "Application/PreExecutable"),
        (adl("", "<Resources><Coprocessor/></Resources>"), "Resources/Coprocessor"),
        (
            adl(
                "<Executable><Path>a</Path></Executable>",
                "<Resources><WallTime>1e3</WallTime></Resources>",
            ),
            "WallTime '1e3'",
        ),
        (
            adl(
                "<Executable><Path>a</Path></Executable>",
                "<DataStaging><InputFile><Name>x</Name><Source><URI>http://h/x</URI></Source>"
                "</InputFile></DataStaging>",
            ),
            "InputFile x from http://h/x",
        ),
        (
            adl(
                "<Executable><Path>a</Path></Executable>",
                "<DataStaging><InputFile><Name>x</Name></InputFile><InputFile><Name>x</Name>"
                "</InputFile></DataStaging>",
            ),
            "input file x: two",
        ),
    ],
)
def test_what_cannot_be_run_here_is_named(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        accepted(text)


def test_more_jobs_at_once_than_are_taken_are_refused() -> None:
    with pytest.raises(BadInput, match="1001 jobs in one request"):
        read("+" + "(&(executable=a))" * 1001)


BOMBS = {
    "a namespace before each name": (
        f'<ActivityDescriptions xmlns="{"u" * 100_000}">'
        + "".join(f"<a{index}/>" for index in range(500))
        + "</ActivityDescriptions>",
        "no description",
    ),
    "a namespace before each attribute": (
        f'<ActivityDescriptions xmlns:u="{"u" * 100_000}" '
        + " ".join(f'u:a{index}=""' for index in range(500))
        + "/>",
        "no description",
    ),
    "a namespace at each job": (
        f'<ActivityDescriptions xmlns="{"u" * 100_000}">'
        + "<ActivityDescription/>" * 1000
        + "</ActivityDescriptions>",
        "executable is missing",
    ),
    "elements": ("<a>" + "<b/>" * 1_000_000, "more than 100000 elements"),
    "jobs in ADL": (
        "<ActivityDescriptions>" + "<ActivityDescription/>" * 90_000 + "</ActivityDescriptions>",
        "90000 jobs in one request, at most 1000",
    ),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_what_a_request_takes_is_in_proportion_to_its_text(bomb: str) -> None:
    text, words = BOMBS[bomb]
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match=words):
            raise next(job.found for job in read(text) if isinstance(job.found, BadInput))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 40_000_000


def test_a_description_is_bounded() -> None:
    path, long = "<Executable><Path>a</Path>", "x" * 8000
    argument = f"<Argument>{long}</Argument>"
    assert accepted(adl(f"{path}{5 * argument}</Executable>")).arguments == (long,) * 5
    with pytest.raises(BadInput, match=r"a description of 80\d+ characters, at most 65536"):
        accepted(adl(f"{path}{10 * argument}</Executable>"))
    with pytest.raises(BadInput, match="XML: Argument: more than 65536 characters"):
        accepted(adl(f"{path}<Argument>{10 * long}</Argument></Executable>"))
    with pytest.raises(BadInput, match=r"a description of 80\d+ characters, at most 65536"):
        accepted(f"&(executable=a)(arguments={' '.join([long] * 10)})")


def test_what_variables_give_to_a_job_is_bounded() -> None:
    doubled = "".join(
        f"(rslSubstitution=({b} $({a})$({a})))" for a, b in pairwise("ABCDEFGHIJKLMNO")
    )
    text = f"&(rslSubstitution=(A 0123456789)){doubled}(executable=a)(arguments=$(O))"
    assert len(text) < 600
    with pytest.raises(BadInput, match="variables give more than 65536 characters"):
        accepted(text)


def test_a_job_is_a_bot_of_its_own_under_its_id() -> None:
    assert fields(JOB) == {
        "command": ["./run.sh", "a b", "c"],
        "name": "try",
        "inputs": ["run.sh", "data/in.txt"],
        "outputs": ["out.txt", "res/*", "stdout", "stderr"],
        "stdin": "data/in.txt",
        "env": {"A": "b"},
        "cpus": 2,
        "memory": 600,
        "disk": 2,
        "time": 600,
        "exit_codes": "any",
        "max_failures": "100%",
        "idempotency_key": ID,
        "base": Path("/f"),
    }


@pytest.mark.parametrize("language", ["ADL", "xRSL"])
@pytest.mark.parametrize(
    "executable",
    [
        "../../victim/inputs/data", "../../../jobs.db", "./../../../jobs.db", "d/../run.sh",
        "./d/../../../../jobs.db", ".//run.sh", "d//in", "link", "./link", "links/jobs.db",
        "{here}/jobs.db", "{here}/./jobs.db", "//{here}/jobs.db", "{here}/files/id/inputs/run.sh",
        "other", "./other", "..", ".",
    ],
)  # fmt: skip
def test_a_description_can_have_nothing_of_this_disk_but_what_its_client_sent(
    tmp_path: Path, language: str, executable: str
) -> None:
    folder, victim = tmp_path / "files/id/inputs", tmp_path / "files/victim/inputs/data"
    here = [tmp_path / "jobs.db", victim, folder / "other", folder / "run.sh", folder / "d/in"]
    for path in here:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name)
    (folder / "link").symlink_to(victim)
    (folder / "links").symlink_to(tmp_path)
    program = executable.format(here=tmp_path)
    if language == "ADL":
        text = adl(
            f"<Executable><Path>{program}</Path><Argument>{victim}</Argument></Executable>",
            "<DataStaging><InputFile><Name>run.sh</Name></InputFile>"
            "<InputFile><Name>d/in</Name></InputFile></DataStaging>",
        )
    else:
        sent = '(run.sh "")(d/in "")'
        text = f'&(executable="{program}")(arguments="{victim}")(inputFiles={sent})'
    [asked] = read(text)
    if isinstance(asked.found, BadInput):
        assert str(asked.found) == f"executable {program}: no input file has this name"
        return
    prepared = prepare(Submission(**submission_fields(asked.found, ID, folder)))
    assert [file.path for file in prepared.files] == [folder / "run.sh", folder / "d/in"]


@pytest.mark.parametrize("executable", ["bin/run.sh", "./bin/run.sh"])
def test_a_program_that_is_sent_may_be_in_a_directory(tmp_path: Path, executable: str) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/run.sh").write_text("#!/bin/sh")
    job = accepted(f'&(executable={executable})(inputFiles=(bin/run.sh ""))')
    manifest = prepare(Submission(**submission_fields(job, ID, tmp_path))).manifest
    assert manifest.command == ("./bin/run.sh",)
    assert [(file.name, file.executable) for file in manifest.inputs] == [("bin/run.sh", True)]


@pytest.mark.parametrize("mark", ["", "<IsExecutable>false</IsExecutable>"])
@pytest.mark.parametrize("executable", ["bin/run.sh", "./bin/run.sh"])
def test_a_program_that_is_sent_is_executable_whatever_the_language(
    executable: str, mark: str
) -> None:
    sent = accepted(
        adl(
            f"<Executable><Path>{executable}</Path></Executable><Output>o</Output><Error>o</Error>",
            f"<DataStaging><InputFile><Name>bin/run.sh</Name>{mark}</InputFile></DataStaging>",
        )
    )
    assert sent.inputs == (SentFile("bin/run.sh", is_executable=True),)
    assert (
        accepted(f"&(executable={executable})(inputFiles=(bin/run.sh ''))(stdout=o)(join=yes)")
        == sent
    )


@pytest.mark.parametrize(("mark", "is_executable"), [("1", True), ("true", True), ("0", False)])
def test_other_inputs_are_executable_if_their_client_says_so(
    mark: str, is_executable: bool
) -> None:
    item = f"<InputFile><Name>x</Name><IsExecutable>{mark}</IsExecutable></InputFile>"
    sent = accepted(
        adl("<Executable><Path>a</Path></Executable>", f"<DataStaging>{item}</DataStaging>")
    )
    assert sent.inputs == (SentFile("x", is_executable),)


def test_braces_are_no_placeholders_and_programs_on_the_path_are_none_of_the_job() -> None:
    job = JobDescription("echo", arguments=("{x}",), environment={"A": "{}"})
    found = fields(job)
    assert (found["command"], found["env"]) == (["echo", "{{x}}"], {"A": "{{}}"})
    assert prepare(Submission(**found)).manifest.command == ("echo", "{{x}}")


@pytest.mark.parametrize(
    "streams_of", ["(join=yes)(stdout=o)", "(stdout=o)(join=yes)", "(join=yes)(stderr=e)(stdout=o)"]
)
def test_streams_are_joined_wherever_that_is_said(streams_of: str) -> None:
    joined = accepted(f"&(executable=/bin/a){streams_of}")
    assert (joined.stdout, joined.stderr) == ("o", "o")


def test_names_that_only_begin_alike_are_no_directories() -> None:
    xrsl = (
        "&(executable=/bin/a)(outputFiles=(a '')(a.b '')(ab/c '')(d/ '')(d/e ''))(stdout=d/o)"
        "(inputFiles=(a '')(a.part '')(ab/c ''))"
    )
    assert accepted(xrsl).outputs == ("a", "a.b", "ab/c", "d/", "d/e")


def test_streams_are_files_of_the_job_and_may_be_one() -> None:
    assert streams(JOB) == {"stdout": "o.txt", "stderr": "e.txt"}
    joined = accepted("&(executable=/bin/a)(stdout=o)(join=yes)(outputFiles=(/ ''))")
    assert streams(joined) == {"stdout": "o"}
    found = fields(joined)
    assert found["command"][-1] == "/bin/a"
    assert found["outputs"] == ["*", "stdout"]


def numbered_outputs(count: int) -> str:
    return "".join(f'(o{number} "")' for number in range(count))


def test_a_job_has_no_more_outputs_than_a_replica_brings(tmp_path: Path) -> None:
    def described(count: int) -> str:
        outputs = numbered_outputs(count)
        return f"&(executable=/bin/a)(stdout=o)(stderr=e)(outputFiles={outputs})"

    [most, more] = read(f"+({described(250)})({described(251)})")
    assert isinstance(most.found, JobDescription)
    assert (
        len(prepare(Submission(**submission_fields(most.found, ID, tmp_path))).manifest.outputs)
        > 250
    )
    assert str(more.found) == "251 output files, at most 250"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (f"&(executable=a)(outputFiles={numbered_outputs(251)})", "251 output files"),
        ("&(executable=a)(queue=other)", "queue other"),
        ("&(executable=a)(count=2000)", "2000 slots"),
        (f"&(executable=a)(arguments={'x' * 70_000})", "a description of 7"),
    ],
    ids=["outputs", "queue", "slots", "characters"],
)
def test_what_was_accepted_is_read_also_if_limits_are_lower_now(text: str, fault: str) -> None:
    [asked] = read(text)
    assert isinstance(asked.found, BadInput)
    assert str(asked.found).startswith(fault)
    assert reread(asked.text).executable == "a"
