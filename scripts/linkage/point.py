"""The job: the log10 likelihood of the families at one pair of recombination fractions.

`python3 point.py THETA1 THETA2` runs beside fastlink's programs `unknown` and `mlink` and
their inputs pedfile.dat and datafile.dat, and prints one line: THETA1 THETA2 LOG10_LIKELIHOOD.
It goes to hosts that have no GridBot library, so it needs only Python's own.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAMS = ("unknown", "mlink")
INPUTS = (*PROGRAMS, "pedfile.dat", "datafile.dat")

# The disease locus (2) between the two markers (1 and 3): THETA1 is the recombination fraction
# of marker 1 and the disease, THETA2 that of the disease and marker 3.
_LOCUS_ORDER = "1 2 3"
# mlink's stopping rule for the varied fraction (the second one): one step beyond 1/2, thus
# one record at the given value after the one at 1/2 that every scan starts with.
_ONE_STEP = "2 1.00000 0.50000"
# A point takes 10 ms; on a damaged datafile.dat mlink can run for ever.
_PROGRAM_SECONDS = 60

_RECORD = re.compile(
    r"^THETAS +(?P<theta1>\S+) (?P<theta2>\S+)$"
    r".*?^TOTALS +\S+ +(?P<log10_likelihood>-\d{1,9}\.\d{6})$",
    re.MULTILINE | re.DOTALL,
)


class PointError(Exception):
    """The likelihood could not be computed; the message says which program said what."""


def fraction(text: str) -> str:
    """Return a recombination fraction as mlink prints it: three decimals."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    rounded = f"{value:.3f}"
    if not 0 < value <= 0.5 or float(rounded) != value:
        raise PointError(f"not a fraction from 0.001 to 0.500 with three decimals: {text}")
    return rounded


def varied(datafile: str, theta1: str, theta2: str) -> str:
    """Return a three-locus datafile.dat with our locus order and these fractions.

    LINKAGE's format: the order is the third line; the last two lines hold the
    fractions and which of them mlink varies.
    """
    lines = datafile.rstrip().splitlines()
    if len(lines) < 6 or lines[0].split()[:1] != ["3"]:
        raise PointError("datafile.dat does not describe three loci")
    lines[2] = f" {_LOCUS_ORDER}"
    lines[-2:] = [f" {theta1} {theta2}", f" {_ONE_STEP}"]
    return "\n".join(lines) + "\n"


def log10_likelihood(outfile: str, theta1: str, theta2: str) -> str:
    """Return the last TOTALS record of mlink's outfile.dat, digit by digit."""
    records = list(_RECORD.finditer(outfile))
    if not records or records[-1].group("theta1", "theta2") != (theta1, theta2):
        raise PointError(f"mlink wrote no likelihood for {theta1} {theta2} into outfile.dat")
    return records[-1]["log10_likelihood"]


def evaluate(theta1: str, theta2: str, inputs: Path, scratch: Path) -> str:
    """Return the line for one point, computed in a new folder under `scratch`.

    The programs write beside their inputs, which may be shared: they get copies.
    """
    theta1, theta2 = fraction(theta1), fraction(theta2)
    with tempfile.TemporaryDirectory(prefix="point-", dir=scratch) as name:
        folder = Path(name)
        _copy(inputs, folder)
        datafile = folder / "datafile.dat"
        datafile.write_text(varied(datafile.read_text("latin-1"), theta1, theta2), "latin-1")
        for program in PROGRAMS:
            _run(program, folder)
        outfile = (folder / "outfile.dat").read_text("latin-1")
    return f"{theta1} {theta2} {log10_likelihood(outfile, theta1, theta2)}"


def _copy(inputs: Path, folder: Path) -> None:
    for name in INPUTS:
        try:
            shutil.copyfile(inputs / name, folder / name)
        except OSError as error:
            raise PointError(f"cannot read {name}: {error.strerror}") from None
    for program in PROGRAMS:
        (folder / program).chmod(0o755)


def _run(program: str, folder: Path) -> None:
    """Run one program; on bad input they ask for <Enter>, so stdin is empty."""
    try:
        ended = subprocess.run(
            [folder.resolve() / program],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PROGRAM_SECONDS,
        )
    except OSError as error:
        raise PointError(f"cannot run {program}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise PointError(f"{program} took more than {_PROGRAM_SECONDS} s") from None
    if ended.returncode != 0:
        said = ended.stdout.decode("latin-1").split("\n")
        last = next((line.strip() for line in reversed(said) if line.strip()), "nothing")
        raise PointError(f"{program} ended with exit code {ended.returncode}, saying: {last}")


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print("usage: python3 point.py THETA1 THETA2", file=sys.stderr)
        return 2
    try:
        print(evaluate(arguments[0], arguments[1], inputs=Path(), scratch=Path()))
    except PointError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
