"""The demo's scan: its grid, its job, its LOD scores and its comparison with a direct run."""

import csv
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from scripts.linkage import direct, fetch, grid, point, report, sweep
from scripts.linkage.settings import read

JOB = point.__file__
DATAFILE = """\
3 0 0 5 << NO. OF LOCI, RISK LOCUS, SEXLINKED (IF 1) PROGRAM
 0 0.0 0.0 0
 1 3 2
3 2
 0.5 0.5
1 2
 0.99 0.01
 1
 0.0 0.9 0.9
3 2
 0.5 0.5
 0 0
 0.11970 0.12500
 2 0.12500 0.38000
"""
# Recorded from mlink at 0.1 and 0.2: the scan's start at 1/2, then the point itself.
OUTFILE = """\
LINKAGE (V5.1) WITH  3-POINT AUTOSOMAL DATA
 ORDER OF LOCI:   1  2  3
-----------------------------------
-----------------------------------
THETAS  0.100 0.500
-----------------------------------
PEDIGREE |  LN LIKE  | LOG 10 LIKE
-----------------------------------
        1   -41.899438   -18.196656 LOD=     0.000000
        2   -32.456028   -14.095444 LOD=     0.000000
-----------------------------------
TOTALS      -74.355466   -32.292100
-2 LN(LIKE) =  1.48711e+02 LOG LIKE DIFFERENCE =     0.000000
-----------------------------------
-----------------------------------
THETAS  0.100 0.200
-----------------------------------
PEDIGREE |  LN LIKE  | LOG 10 LIKE
-----------------------------------
        1   -40.384804   -17.538860 LOD=     0.657796
        2   -32.260856   -14.010682 LOD=     0.084762
-----------------------------------
TOTALS      -72.645660   -31.549542
-2 LN(LIKE) =  1.45291e+02 LOG LIKE DIFFERENCE =     3.419612
"""
LINES = ["0.100 0.150 -31.468499", "0.100 0.200 -31.549542", "0.500 0.500 -33.881059"]


@pytest.fixture(scope="session")
def fastlink(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return fetch.fastlink(tmp_path_factory.mktemp("cache"))
    except fetch.Unavailable as error:
        pytest.skip(str(error))


def test_an_axis_goes_from_almost_no_recombination_to_unlinked() -> None:
    axis = grid.axis(21)
    assert (axis[0], axis[1], axis[-1], len(set(axis))) == ("0.001", "0.025", "0.500", 21)


@pytest.mark.parametrize("points", [11, 12, 21, 101])
def test_every_grid_holds_the_unlinked_point_once(points: int) -> None:
    pairs = grid.pairs(points)
    assert pairs.count(grid.UNLINKED) == 1
    assert len(set(pairs)) == points**2


def test_every_fraction_of_a_grid_is_one_that_the_job_takes() -> None:
    assert [point.fraction(theta) for theta in grid.axis(101)] == grid.axis(101)


def test_the_csv_names_its_columns_and_has_a_row_per_pair(tmp_path: Path) -> None:
    path = tmp_path / "grid.csv"
    grid.write_csv(path, 11)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["theta1"], row["theta2"]) for row in rows] == grid.pairs(11)


@pytest.mark.parametrize("points", ["10", "102", "many"])
def test_a_grid_of_another_size_is_wrong_usage(
    points: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        read(["--points", points])
    assert points in capsys.readouterr().err


def test_a_fraction_is_written_as_mlink_prints_it() -> None:
    assert [point.fraction(text) for text in ("0.1", "0.025", "1e-3")] == [
        "0.100",
        "0.025",
        "0.001",
    ]


@pytest.mark.parametrize("text", ["0", "0.51", "-0.1", "0.1234", "nan", "0,1", ""])
def test_what_is_no_fraction_is_refused(text: str) -> None:
    with pytest.raises(point.PointError, match=f"not a fraction .*: {text}$"):
        point.fraction(text)


def test_varying_a_datafile_changes_the_order_and_the_fractions_only() -> None:
    before, after = DATAFILE.splitlines(), point.varied(DATAFILE, "0.100", "0.200").splitlines()
    pairs = enumerate(zip(before, after, strict=True))
    changed = {number: new for number, (old, new) in pairs if old != new}
    assert changed == {2: " 1 2 3", 12: " 0.100 0.200", 13: " 2 1.00000 0.50000"}


@pytest.mark.parametrize("text", ["", "3 0 0 5\n 0\n", DATAFILE.replace("3 0 0 5", "2 0 0 5")])
def test_a_datafile_without_three_loci_is_refused(text: str) -> None:
    with pytest.raises(point.PointError, match="does not describe three loci"):
        point.varied(text, "0.100", "0.200")


def test_the_likelihood_is_the_last_record_to_its_last_digit() -> None:
    assert point.log10_likelihood(OUTFILE, "0.100", "0.200") == "-31.549542"


@pytest.mark.parametrize(
    "outfile",
    [
        pytest.param("", id="empty"),
        pytest.param(OUTFILE[: OUTFILE.rindex("TOTALS")], id="cut before the last record's totals"),
        pytest.param(OUTFILE.replace("0.100 0.200", "0.100 0.201"), id="another point"),
        pytest.param(
            OUTFILE.replace("-31.549542", "-43429355638650388480.000000"), id="impossible families"
        ),
    ],
)
def test_an_outfile_without_the_asked_likelihood_is_an_error(outfile: str) -> None:
    with pytest.raises(point.PointError, match=r"no likelihood for 0\.100 0\.200"):
        point.log10_likelihood(outfile, "0.100", "0.200")


def test_lod_is_the_difference_to_the_unlinked_likelihood_exactly() -> None:
    scores = report.lod_scores(report.likelihoods(LINES))
    assert scores["0.100", "0.200"] == Decimal("2.331517")
    assert scores[grid.UNLINKED] == 0
    assert report.maximum(scores) == (("0.100", "0.150"), Decimal("2.412560"))


def test_a_second_line_for_a_point_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"two lines for theta1 = 0\.100, theta2 = 0\.200"):
        report.likelihoods([*LINES, "0.100 0.200 -31.549542"])


@pytest.mark.parametrize("line", ["", "0.1 0.2", "0.1 0.2 -3 x", "0.1 0.2 none", "0.1 0.2 nan"])
def test_a_line_that_is_no_point_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match="not a line of two fractions and a likelihood"):
        report.likelihoods([line])


def test_the_comparison_finds_nothing_between_equal_runs() -> None:
    values = report.likelihoods(LINES)
    assert report.differences(values, report.likelihoods(reversed(LINES))) == []


def test_the_comparison_notices_one_differing_digit() -> None:
    values = report.likelihoods(LINES)
    other = values | {("0.100", "0.200"): "-31.549543"}
    assert report.differences(values, other) == [
        "theta1 = 0.100, theta2 = 0.200: -31.549542 here, -31.549543 directly"
    ]


def test_the_comparison_notices_a_missing_point_on_either_side() -> None:
    values = report.likelihoods(LINES)
    fewer = report.likelihoods(LINES[1:])
    assert report.differences(values, fewer) == [
        "theta1 = 0.100, theta2 = 0.150: -31.468499 here, nothing directly"
    ]
    assert report.differences(fewer, values) == [
        "theta1 = 0.100, theta2 = 0.150: nothing here, -31.468499 directly"
    ]


def test_the_table_has_a_row_per_point(tmp_path: Path) -> None:
    path = tmp_path / "lod.csv"
    report.write_table(path, report.lod_scores(report.likelihoods(LINES)))
    assert path.read_text().splitlines()[:3] == [
        "theta1,theta2,lod",
        "0.100,0.150,2.412560",
        "0.100,0.200,2.331517",
    ]


def test_the_picture_is_a_png_of_a_readable_size(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    scores = report.lod_scores(report.likelihoods(direct.sweep_lines(grid.pairs(11))))
    path = tmp_path / "surface.png"
    report.draw(path, scores, "a cross", ("one", "two"))
    header = path.read_bytes()[:24]
    assert header.startswith(b"\x89PNG")
    assert int.from_bytes(header[16:20]) >= 800


def test_the_sweep_peaks_at_its_share_of_recombinants() -> None:
    scores = report.lod_scores(report.likelihoods(direct.sweep_lines(grid.pairs(21))))
    assert report.maximum(scores)[0] == ("0.150", "0.200")


def test_the_sweep_prints_the_likelihood_of_unlinked_loci() -> None:
    # Twenty offspring, each of one of four equally likely kinds.
    assert sweep.evaluate("0.5", "0.5") == "0.500 0.500 -12.041200"


def test_fastlink_is_fetched_once(fastlink: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert fetch.fastlink(fastlink.parent) == fastlink


def test_a_machine_without_apt_has_no_fastlink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(fetch.Unavailable, match="this machine has no apt-get"):
        fetch.fastlink(tmp_path / "cache")


def test_the_job_prints_the_likelihood_of_the_example_families(
    fastlink: Path, tmp_path: Path
) -> None:
    for name in point.INPUTS:
        (tmp_path / name).write_bytes((fastlink / name).read_bytes())
    command = [sys.executable, JOB, "0.1", "0.2"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("0.100 0.200 -31.549542\n", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(point.INPUTS)


def test_the_example_families_show_linkage(fastlink: Path) -> None:
    pairs = [("0.001", "0.125"), ("0.001", "0.150"), ("0.001", "0.175"), grid.UNLINKED]
    scores = report.lod_scores(report.likelihoods(direct.fastlink_lines(fastlink, pairs)))
    assert report.maximum(scores) == (("0.001", "0.150"), Decimal("3.318559"))


def test_the_job_names_the_input_that_is_missing(tmp_path: Path) -> None:
    command = [sys.executable, JOB, "0.1", "0.2"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr == "cannot read unknown: No such file or directory\n"


def test_the_job_passes_on_what_a_failing_program_said(fastlink: Path, tmp_path: Path) -> None:
    for name in point.INPUTS:
        (tmp_path / name).write_bytes((fastlink / name).read_bytes())
    (tmp_path / "pedfile.dat").write_text("no pedigree\n")
    with pytest.raises(point.PointError, match=r"unknown ended with exit code .*, saying: .+"):
        point.evaluate("0.1", "0.2", inputs=tmp_path, scratch=tmp_path)
