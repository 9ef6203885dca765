"""`gridbot dag …`: run workflows as HTCondor's users write them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gridbot.api.errors import BadInput, GridbotError
from gridbot.api.session import connect
from gridbot.commands.options import as_json, print_json, say, server_options
from gridbot.dag import status as dag_status
from gridbot.dag.language.model import DagError
from gridbot.dag.language.reader import Reading, findings_of
from gridbot.dag.run.run import DagRun
from gridbot.dag.run.settings import RunOptions

FILES = click.argument("files", metavar="FILE.dag...", nargs=-1, required=True)
FILE_OF_RUN = click.argument("file", metavar="FILE.dag")
# Names of condor_submit_dag: one dash or two, in any case.
_FLAGS_WITHOUT_EFFECT = (
    "verbose", "do_recurse", "no_recurse", "update_submit", "import_env", "suppress_notification",
    "dont_suppress_notification", "allowversionmismatch",
)  # fmt: skip
_VALUES_WITHOUT_EFFECT = (
    "append", "debug", "notification", "outfile_dir", "include_env", "dagman",
    "schedd-daemon-ad-file", "schedd-address-file", "insert_sub_file",
)  # fmt: skip
_ANY_CASE = {"token_normalize_func": str.lower, "help_option_names": ["-h", "--help"]}


@click.group()
def dag() -> None:
    """Run DAGs of jobs, written for HTCondor's DAGMan, and follow, stop and check them.

    FILE.dag and the submit descriptions that it names are those of HTCondor, unchanged.
    """


def _both(name: str, **more: Any) -> Callable[[Any], Any]:
    return click.option(f"--{name}", f"-{name}", **more)


def _without_effect(command: Any) -> Any:
    """Options of condor_submit_dag that ask for nothing that is to be done here."""
    more: dict[str, Any] = {"hidden": True, "expose_value": False}
    for name in _FLAGS_WITHOUT_EFFECT:
        command = _both(name, is_flag=True, help="Accepted, without effect.", **more)(command)
    for name in _VALUES_WITHOUT_EFFECT:
        command = _both(name, multiple=True, help="Accepted, without effect.", **more)(command)
    return command


@dag.command(context_settings=_ANY_CASE)
@FILES
@click.option(
    "--force",
    "-force",
    "-f",
    is_flag=True,
    help="Begin anew: forget an interrupted run and rescue files.",
)
@_both("maxjobs", type=click.IntRange(0), help="Most nodes at once; 0 is no limit.  [default: 0]")
@_both("maxidle", type=click.IntRange(0), help="Most jobs that wait for a host.  [default: 1000]")
@_both("maxpre", type=click.IntRange(0), help="Most PRE scripts at once.  [default: 20]")
@_both("maxpost", type=click.IntRange(0), help="Most POST scripts at once.  [default: 20]")
@_both("maxhold", type=click.IntRange(0), help="Most HOLD scripts at once.  [default: 20]")
@_both("usedagdir", is_flag=True, help="Paths in a DAG file count from its own folder.")
@_both("autorescue", type=click.IntRange(0, 1), help="Use the newest rescue file.  [default: 1]")
@_both("dorescuefrom", type=click.IntRange(1), metavar="N", help="Use rescue file N.")
@_both("rescuefile", metavar="FILE", help="Use this rescue file.")
@_both("load_save", metavar="FILE", help="Go on from a save point.")
@_both("dumprescue", is_flag=True, help="Write a rescue file and run nothing.")
@_both("alwaysrunpost", is_flag=True, help="Run POST although PRE has failed.")
@_both("dontalwaysrunpost", is_flag=True, help="Do not.  [default]")
@_both("priority", type=int, help="Added to the priority of all nodes.  [default: 0]")
@_both("config", metavar="FILE", help="File of DAGMAN_ settings, as CONFIG in the DAG.")
@_both("batch-name", metavar="NAME", help="Name of the BOTs.  [default: that of the DAG]")
@_both("insert_env", multiple=True, metavar="A=1;B=2", help="Set variables for scripts.")
@_both("no_submit", is_flag=True, help="Check the DAG, and run nothing.")
@_both("dorecovery", is_flag=True, help="Go on with an interrupted run; begin none.")
@_without_effect
@server_options
@click.pass_context
def run(
    ctx: click.Context, /, files: tuple[str, ...], server: str | None, key_file: Path | None,
    **given: Any,
) -> None:  # fmt: skip
    """Run a DAG to its end; exit with DAGMan's code.

    0: all nodes are done.  1: a node failed, or the DAG was refused or halted.  2: it was stopped.
    ABORT-DAG-ON says others.  After ^C the jobs go on, and the same command follows them
    again (exit code 3); after a failure it goes on from the rescue file.
    """
    if given["no_submit"]:
        ctx.invoke(check, files=files, usedagdir=given["usedagdir"], as_json=False)
    try:
        one = DagRun(files, _options(given), lambda: connect(server, key_file), say)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: one.pause())
        signal.signal(signal.SIGUSR1, lambda *_: one.remove())
        code = one.execute()
    except BadInput as error:
        say(f"gridbot: {error}")
        code = 1
    ctx.exit(code)


def _options(given: dict[str, Any]) -> RunOptions:
    always = True if given["alwaysrunpost"] else False if given["dontalwaysrunpost"] else None
    rescue = given["autorescue"]
    return RunOptions(
        force=given["force"],
        max_jobs=given["maxjobs"],
        max_idle=given["maxidle"],
        max_pre=given["maxpre"],
        max_post=given["maxpost"],
        max_hold=given["maxhold"],
        use_dag_dir=given["usedagdir"],
        auto_rescue=None if rescue is None else bool(rescue),
        rescue_from=given["dorescuefrom"],
        rescue_file=given["rescuefile"] or "",
        load_save=given["load_save"] or "",
        dump_rescue=given["dumprescue"],
        always_run_post=always,
        priority=given["priority"] or 0,
        config=given["config"] or "",
        name=given["batch_name"] or "",
        variables=_variables(given["insert_env"]),
        must_resume=given["dorecovery"],
    )


def _variables(given: tuple[str, ...]) -> dict[str, str]:
    """Variables of `-insert_env`.  Raises BadInput."""
    found = {}
    for item in (part for text in given for part in text.split(";") if part.strip()):
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise BadInput(f"-insert_env {item!r}: write NAME=value, and ; between them")
        found[name.strip()] = value
    return found


@dag.command()
@FILES
@click.option("--usedagdir", is_flag=True, help="Paths in a DAG file count from its own folder.")
@as_json
@click.pass_context
def check(ctx: click.Context, files: tuple[str, ...], usedagdir: bool, as_json: bool) -> None:
    """Check a DAG, and print all that is wrong.

    Each error has its file and line.

    Exits with 1 if anything is.
    """
    warnings = []
    try:
        found = Reading(use_dag_dir=usedagdir).read(files)
        errors, nodes = [*findings_of(found)], len(found.nodes)
        warnings = [*found.warnings]
    except DagError as error:
        errors, nodes = [*error.findings], 0
    if as_json:
        print_json(
            {
                "nodes": nodes,
                "errors": [_document(item) for item in errors],
                "warnings": [_document(item) for item in warnings],
            }
        )
    else:
        for finding in warnings:
            click.echo(f"{finding.place}: warning: {finding.message}")
        for finding in errors:
            click.echo(str(finding))
        if not errors:
            click.echo(f"{', '.join(files)}: {nodes} nodes, nothing is wrong")
    ctx.exit(1 if errors else 0)


def _document(finding: Any) -> dict[str, Any]:
    place = finding.place
    return {"file": place.file, "line": place.line, "message": finding.message}


@dag.command()
@FILE_OF_RUN
@as_json
def status(file: str, as_json: bool) -> None:
    """Show how far a DAG's run is.

    It says what runs, what failed, and what waits.
    """
    found = dag_status.read_status(Path(file))
    if as_json:
        print_json(found.document())
    else:
        click.echo(found.page())


@dag.command()
@FILE_OF_RUN
@click.option("--pause", is_flag=True, help="Let its jobs go on; `gridbot dag run` follows again.")
def stop(file: str, pause: bool) -> None:
    """End a DAG's run, and write a rescue file.

    Its jobs are cancelled.
    """
    dag_status.signal_run(Path(file), signal.SIGTERM if pause else signal.SIGUSR1)
    click.echo(f"{file}: asked to {'pause' if pause else 'stop'}")


@dag.command()
@FILE_OF_RUN
def rescue(file: str) -> None:
    """Write the rescue file of an interrupted run.

    The run is over then, and the next one goes on from the file.
    """
    try:
        name = dag_status.write_rescue(Path(file))
    except GridbotError as error:
        say(f"gridbot: {error}")
        sys.exit(1)
    click.echo(f"wrote {name}; gridbot dag run {file} goes on from it")
