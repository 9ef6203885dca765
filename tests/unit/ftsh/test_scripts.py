"""Each construct of the fault tolerant shell, by what a script prints and how it ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from gridbot.ftsh.reader import read
from gridbot.ftsh.run.script import run_script
from gridbot.ftsh.run.settings import settings_of

GRIDBOT = Path(sys.executable).with_name("gridbot")
QUICK = {"FTSH_EXPMIN": "0"}  # pauses between attempts


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    log: str


Run = Callable[..., Done]
Printed = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a script here, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def ran(script: str, *arguments: str, **environment: str) -> Done:
        variables = {**os.environ, **QUICK, **environment}
        settings = settings_of(variables)
        code = run_script(read(script), ("script", *arguments), variables, settings)
        captured = capfd.readouterr()
        return Done(code, captured.out, captured.err)

    return ran


@pytest.fixture
def printed(run: Run) -> Printed:
    """Output of a script that must succeed."""

    def output(script: str, *arguments: str) -> str:
        done = run(script, *arguments)
        assert done.code == 0, done.log
        return done.out

    return output


def command(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`gridbot ftsh`, as people run it."""
    return subprocess.run(
        [GRIDBOT, "ftsh", *arguments],
        capture_output=True, text=True, env={**os.environ, **QUICK, **environment}, timeout=120,
    )  # fmt: skip


def test_the_first_failure_ends_the_script(run: Run) -> None:
    done = run("echo one\nfalse\necho two\n")
    assert (done.code, done.out) == (1, "one\n")
    assert "script:2 false ended with exit code 1" in done.log


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("/no/such/program", "cannot be run"),
        ("sh -c 'kill -9 \\$\\$'", "signal 9"),
        ("$nothing", "there is no command"),
        ("cd /no/such/folder", "No such file"),
        ("cat < /no/such/file", "cannot redirect"),
        ("cat -< none > /no/such/folder/file", "cannot redirect"),
        ("x=$none", "one word is expected here, not nothing"),
        ("x=f(1)", "there is no function f"),
        ("x=1 .div. 0", "has no value"),
        ("x=10 .pow. 999999999", "has no value"),
        ("x=10 .pow. 5000", "has no value"),
        ("x=10 .pow. 3000\nx=$x .mul. $x", "has no value"),
        ("forall x in 1 .to. 100000\nend", "1000 at most run at once"),
        ("x=a .add. 1", "'a' is no integer"),
        ("if 1\nend", "'1' is neither true nor false"),
        ("if true .and. 1\nend", "'1' is neither true nor false"),
        ("shift 9", "cannot shift 9 of 0 arguments"),
        ("for x in $none\nend", "there is no word"),
        ("forany x in $none\nend", "there is no word"),
        ("for x in 1 .to. 9 .step. 0\nend", "has no end"),
        ("export a b", "the name of one variable"),
        ("try 0 times\nend", "at least once"),
        ("failure", "failure"),
    ],
)
def test_what_fails_says_why(run: Run, command: str, why: str) -> None:
    done = run(f"{command}\n")
    assert done.code == 1
    assert why in done.log


def test_try_tries_as_often_as_it_says_and_catch_replaces_the_failure(printed: Printed) -> None:
    script = "try 3 times\n echo t\n failure\ncatch\n echo c\nend\necho after\n"
    assert printed(script) == "t\nt\nt\nc\nafter\n"


def test_a_failure_in_catch_is_the_failure_of_try(run: Run) -> None:
    done = run("try\n failure\ncatch\n echo c\n failure\nend\necho after\n")
    assert (done.code, done.out) == (1, "c\n")


def test_try_without_a_limit_is_one_attempt(run: Run) -> None:
    for limit in ("", " every 1 second"):
        done = run(f"try{limit}\n echo t\n failure\nend\n")
        assert (done.code, done.out) == (1, "t\n")


def test_try_ends_with_its_first_success(printed: Printed) -> None:
    script = "n=0\ntry 9 times\n n=$n .add. 1\n if $n .lt. 3\n  failure\n end\nend\necho $n\n"
    assert printed(script) == "3\n"


def test_a_limit_of_time_ends_a_program_that_runs(run: Run) -> None:
    done = run("try for 1 second\n sleep 600\nend\n")
    assert done.code == 1
    assert "sleep ran out of time" in done.log


def test_a_limit_holds_for_tries_inside_and_catch_has_the_outer_one(printed: Printed) -> None:
    script = """
        try for 2 seconds or 1 time
          try for 1 hour
            sleep 600
          catch
            echo never
          end
        catch
          echo outer
        end
        """
    assert printed(script) == "outer\n"


def test_limits_are_expressions(printed: Printed) -> None:
    script = "n=1\ntry for $n .add. 1 times or ( $n ) hours\n echo t\n failure\ncatch\nend\n"
    assert printed(script) == "t\nt\n"


def test_for_goes_through_words_and_stops_at_the_first_failure(run: Run, printed: Printed) -> None:
    script = 'v="b c"\nfor x in a $v "$v"\n echo "[$x]"\nend\n'
    assert printed(script) == "[a]\n[b]\n[c]\n[b c]\n"
    done = run("for x in a b c\n echo $x\n if $x .eq. b\n  failure\n end\nend\n")
    assert (done.code, done.out) == (1, "a\nb\n")


def test_forany_keeps_the_word_that_succeeded(printed: Printed) -> None:
    script = 'forany x in a b c\n if $x .ne. b\n  failure\n end\nend\necho "won: $x"\n'
    assert printed(script) == "won: b\n"


def test_forany_fails_if_no_word_succeeds_and_tries_each_once(run: Run) -> None:
    done = run("forany x in a b c\n echo $x\n failure\nend\n")
    assert done.code == 1
    assert sorted(done.out.split()) == ["a", "b", "c"]


def test_forall_begins_all_at_once_and_loses_what_branches_assign(printed: Printed) -> None:
    """Each branch waits for a file of the next one: one after the other they would never end."""
    script = """
        y=outside
        forall x in 0 1 2
          y=$x
          next=( $x .add. 1 ) .mod. 3
          sh -c "touch begun.$x; while [ ! -e begun.$next ]; do sleep 0.01; done"
        end
        echo "$y [$x]"
        forall x in $none
          failure
        end
        """
    assert printed(script) == "outside []\n"


def test_the_first_failure_in_a_forall_ends_the_others(run: Run) -> None:
    script = "forall x in 0 1 2\n if $x .eql. 0\n  failure\n end\n sleep 600\nend\n"
    assert run(script).code == 1


def test_a_branch_has_its_own_folder_and_its_exit_ends_only_itself(
    run: Run, printed: Printed, tmp_path: Path
) -> None:
    script = "forall x in 1 2\n cd /\n exit 0\n failure\nend\npwd\n"
    assert printed(script) == f"{tmp_path}\n"
    assert run("try\n forall x in 1 2\n  exit 3\n end\nend\n").code == 1


def test_exit_ends_at_once_with_its_code(run: Run) -> None:
    assert run("try 9 times\n exit 7\nend\n").code == 7
    assert run("exit\n").code == 0
    assert run("exit x\n").code == 1


def test_exec_replaces_the_shell(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(
        f"try 3 times\n exec sh -c 'echo hi; exit 5' > {tmp_path}/out\nend\necho after\n"
    )
    done = command(script)
    assert (done.returncode, done.stdout) == (5, "")
    assert (tmp_path / "out").read_text() == "hi\n"


def test_an_exec_that_fails_changes_nothing(run: Run, tmp_path: Path) -> None:
    script = "try\n exec /no/such/program > f\ncatch\n echo x\nend\npwd\n"
    done = run(script)
    assert (done.code, done.out) == (0, f"x\n{tmp_path}\n")
    assert (tmp_path / "f").read_text() == ""


def test_a_log_that_cannot_be_written_ends_no_script(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("try\n failure\ncatch\n echo caught\nend\n")
    done = command("-f", "/dev/full", "-l", "40", script)
    assert (done.returncode, done.stdout) == (0, "caught\n")


def test_a_signal_that_is_ignored_ends_no_script(tmp_path: Path) -> None:
    """As under nohup."""
    script = tmp_path / "script"
    script.write_text("sh -c 'kill -HUP $PPID'\necho goes on\n".replace("$", "\\$"))
    done = subprocess.run(
        ["sh", "-c", 'trap "" HUP; exec "$0" ftsh "$1"', GRIDBOT, script],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "goes on\n")


def test_while_and_if_go_by_truths(printed: Printed) -> None:
    script = """
        n=0
        while $n .lt. 4
          if $n .eql. 0
            echo zero
          else if ( $n .eql. 1 ) .or. ( $n .eql. 2 )
            echo some
          else
            echo many
          end
          n=$n .add. 1
        end
        """
    assert printed(script) == "zero\nsome\nsome\nmany\n"


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 .add. 2 .mul. 3", "7"),
        ("( 1 .add. 2 ) .mul. 3", "9"),
        ("7 .sub. 2 .sub. 1", "4"),
        ("2 .pow. 3 .pow. 2", "64"),
        ("2 .pow. -1", "1"),
        ("-7 .div. 2", "-3"),
        ("-7 .mod. 2", "-1"),
        ("2 .eq. 2.0", "false"),
        ("02 .eql. 2", "true"),
        ("02 .ne. 2", "true"),
        ("3 .neql. 3", "false"),
        ("1 .le. 1 .and. 2 .ge. 3", "false"),
        ("true .or. false .and. false", "true"),
        (".not. true .eq. false", "true"),
        ("'a b' .eq. \"a b\"", "true"),
        (".isdir. / .and. .isfile. /etc/passwd", "true"),
        (".exists. /no/such/file", "false"),
        (".isr. /etc/passwd", "true"),
        (".isx. /etc/passwd", "false"),
        (".ischar. /dev/null", "true"),
        (".isblock. /dev/null", "false"),
        (".islink. /proc/self/exe", "true"),
        (".ispipe. / .or. .issock. /", "false"),
        ("3 .to. 1", "1 2 3"),
        ("1 .to. 9 .step. -4", "1 5 9"),
    ],
)
def test_expressions(printed: Printed, expression: str, value: str) -> None:
    assert printed(f'x={expression}\necho "$x"\n') == f"{value}\n"


def test_functions_take_arguments_and_return_values(printed: Printed) -> None:
    script = """
        function fib
          if $1 .le. 1
            return $1
          end
          return fib($1 .sub. 1) .add. fib($1 .sub. 2)
        end
        function all
          while $# .gt. 0
            echo "$0 $# $1"
            shift
          end
        end
        x=fib(12)
        echo $x
        all a "b c"
        function pair
          return "a b"
        end
        for x in pair()
          echo "[$x]"
        end
        """
    assert printed(script) == "144\nall 2 a\nall 1 b c\n[a b]\n"


def test_a_return_leaves_loops_and_tries_at_once(printed: Printed) -> None:
    script = (
        "function f\n while true\n  try 3 times\n   return 4\n  end\n end\nend\nx=f()\necho $x\n"
    )
    assert printed(script) == "4\n"


def test_a_function_without_a_value_is_no_value(run: Run) -> None:
    done = run("function f\n success\nend\nf\nx=f()\n")
    assert done.code == 1
    assert "function f returned no value" in done.log


def test_more_than_a_thousand_calls_within_each_other_fail(run: Run, printed: Printed) -> None:
    script = "function f\n if $1 .gt. 0\n  f ( $1 .sub. 1 )\n end\nend\n"
    deep = script.replace("f ( $1 .sub. 1 )", "n=$1 .sub. 1\n  f $n")
    assert printed(f"{deep}f 900\necho done\n") == "done\n"
    done = run(f"{deep}f 2000\n")
    assert done.code == 1
    assert "more than 1000 calls" in done.log


def test_functions_are_redirected_as_programs_are(printed: Printed) -> None:
    script = 'function f\n echo out\n cat\nend\necho given -> i\nf -< i -> o\necho "[$o]"\n'
    assert printed(script) == "[out\ngiven]\n"


def test_variables_are_files(run: Run, printed: Printed) -> None:
    script = """
        echo b -> v
        echo a ->> v
        sort -< v -> w
        echo "$w"
        sh -c "echo out; echo err >&2" ->& both
        echo $both
        ls /no/such/file 2-> said
        """
    done = run(script.replace("ls /no", "try\n ls /no").rstrip() + "\ncatch\nend\n")
    assert done.out == "a\nb\nout err\n"
    kept = printed('try\n sh -c "echo kept; exit 1" -> v\ncatch\nend\necho $v\n')
    assert kept == "kept\n"


def test_files_are_redirected_as_in_a_shell(printed: Printed) -> None:
    script = """
        echo one > f
        echo two >> f
        cat < f
        sh -c "echo out; echo err >&2" >& g
        cat g
        sh -c "echo out; echo err >&2" > h 2>&1
        cat h
        """
    assert printed(script) == "one\ntwo\nout\nerr\nout\nerr\n"


def test_variables_of_the_script_and_of_the_environment(run: Run) -> None:
    script = """
        sh -c "echo [\\$x]"
        x=1
        export x
        sh -c "echo [\\$x]"
        x=
        echo "$x ${FROM} $(FROM) $FROM"
        """
    done = run(script, FROM="there")
    assert done.out == "[]\n[1]\n1 there there there\n"


def test_arguments_of_the_script(printed: Printed) -> None:
    script = 'for x in $#  $1 "$2" $* "$@"\n echo "[$x]"\nend\nshift\necho $1 $9\n'
    found = printed(script, "a", "b c")
    assert found.replace("\n", "") == "[2][a][b c][a][b][c][a][b c]b c"


def test_what_a_variable_holds_is_no_script(printed: Printed) -> None:
    script = 'echo \'"; $HOME $(HOME) ` | > x\' -> v\nfor x in $v\n echo -n "<$x>"\nend\n'
    raw = script.replace("$HOME $(HOME)", "\\$HOME \\$(HOME)")
    assert printed(raw) == '<";><$HOME><$(HOME)><`><|><>><x>'


def test_a_signal_ends_the_script_and_all_that_it_runs(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("try for 1 hour\n sh -c 'echo \\$\\$; exec sleep 600'\nend\n")
    with subprocess.Popen([GRIDBOT, "ftsh", script], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        child = int(shell.stdout.readline())
        shell.send_signal(signal.SIGTERM)
        assert shell.wait(timeout=60) == 128 + signal.SIGTERM
    assert not psutil.pid_exists(child)


def test_the_log_tells_as_much_as_is_asked_for_and_nested_shells_share_it(tmp_path: Path) -> None:
    inner, outer, log = tmp_path / "inner", tmp_path / "outer", tmp_path / "log"
    inner.write_text("echo inner\n")
    outer.write_text(f"{GRIDBOT} ftsh {inner}\nsuccess\n")
    for level in ("0", "20"):
        assert command("-f", log, "-l", level, outer).returncode == 0
    assert [line.split("] ")[1] for line in log.read_text().splitlines()] == [
        f"{outer}:1 {GRIDBOT} ftsh {inner}",
        f"{inner}:1 echo inner",
        f"{outer}:2 success",
    ]


def test_a_nested_shell_kills_earlier(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo $FTSH_KILL_TIMEOUT $FTSH_KILL_MODE\n")
    assert command("-t", "12", "-k", "weak", script).stdout == "7 weak\n"


def test_a_script_can_be_read_only(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(f"touch {tmp_path}/done\n")
    assert command("-n", script).returncode == 0
    assert not (tmp_path / "done").exists()


@pytest.mark.parametrize(
    ("text", "variables", "why"),
    [
        ("echo\nend\n", {}, "script:2: end stands here alone"),
        ("success\n", {"FTSH_KILL_TIMEOUT": "soon"}, "'soon' is no whole number"),
        ("success\n", {"FTSH_KILL_MODE": "x"}, "'x' is neither strong nor weak"),
        (None, {}, "script: No such file"),
    ],
)
def test_what_the_command_cannot_use_is_told(
    tmp_path: Path, text: str | None, variables: dict[str, str], why: str
) -> None:
    script = tmp_path / "script"
    if text is not None:
        script.write_text(text)
    done = command(script, **variables)
    assert done.returncode == 2
    assert why in done.stderr
