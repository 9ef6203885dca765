"""DAG files: what is accepted, what each line means, and all errors at once with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridbot.dag.language.model import Dag, DagError, Kind, Variable
from gridbot.dag.language.reader import Reading, findings_of


def read(folder: Path, text: str, **files: str) -> Dag:
    (folder / "x.dag").write_text(text)
    for name, content in files.items():
        (folder / f"{name}.dag").write_text(content)
    return Reading(base=folder).read(["x.dag"])


def errors(folder: Path, text: str, **files: str) -> list[str]:
    with pytest.raises(DagError) as error:
        read(folder, text, **files)
    return [str(item) for item in error.value.findings]


def test_all_errors_are_told_at_once_each_with_its_line(tmp_path: Path) -> None:
    text = "JOB A a.sub\nFROBNICATE\nRETRY A often\nPARENT A CHILD B\nJOB A b.sub\nVARS A\n"
    found = errors(tmp_path, text)
    assert [item.split(": ")[0] for item in found] == [f"x.dag:{n}" for n in (2, 3, 4, 5, 6)]
    assert "'FROBNICATE' is not a valid DAG command" in found[0]
    assert "'often'" in found[1]
    assert "B is no node" in found[2]


def test_a_line_that_refuses_the_dag_is_named_once(tmp_path: Path) -> None:
    found = errors(tmp_path, "REJECT\nDATA A a.stork\n")
    assert found[0] == "x.dag:1: REJECT: this DAG is not to be run"
    assert found[1].startswith("x.dag:2: DATA: A: data placement by Stork is gone")
    assert [item.count("x.dag") for item in found] == [1, 1]


def test_lines_may_name_what_stands_below_them(tmp_path: Path) -> None:
    dag = read(tmp_path, 'VARS A k="v"\nPARENT A CHILD B\nJOB A a.sub\nJOB B a.sub')
    assert dag.nodes["A"].children == ("B",)
    assert dag.nodes["A"].variables == (Variable("k", "v", False),)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('VARS A k="v"', "v"),
        ('vars A k = "v w"', "v w"),
        ("VARS A k=plain", "plain"),
        ('VARS A k=""', ""),
        (r'VARS A k="say \"hi\" \\ \n"', r'say "hi" \ \n'),
        ("VARS A k='it \"is\"'", 'it "is"'),
        ('Vars A other="1" k="2"', "2"),
        ('VARS A k="1" k="2"', "2"),
        ('VARS ALL_NODES k="1"\nVARS A k="2"', "2"),
        ('VARS A prepend="yes" k="x"', "x"),
    ],
)
def test_values_of_variables_are_read_as_condor_does(tmp_path: Path, line: str, value: str) -> None:
    dag = read(tmp_path, f"JOB A a.sub\n{line}")
    assert {item.name: item.value for item in dag.nodes["A"].variables}["k"] == value


def test_keywords_take_any_case_and_both_kinds_of_dashes(tmp_path: Path) -> None:
    text = "job A a.sub\nabort_dag_on A 3 return 4\nRetry A 2 unless_exit 5\npre-skip A 7"
    node = read(tmp_path, text).nodes["A"]
    assert (node.abort_on, node.abort_return) == (3, 4)
    assert (node.retries, node.unless_exit, node.pre_skip) == (2, 5, 7)


def test_a_splice_is_copied_with_its_edges_and_categories(tmp_path: Path) -> None:
    inner = "JOB a a.sub\nJOB b b.sub\nPARENT a CHILD b\nCATEGORY a c\nMAXJOBS c 3\n"
    text = "JOB A a.sub\nSPLICE S in.dag\nSPLICE T in.dag\nPARENT A CHILD S\nPARENT S CHILD T"
    dag = read(tmp_path, text, **{"in": inner})
    assert [*dag.nodes] == ["A", "S+a", "S+b", "T+a", "T+b"]
    assert dag.nodes["S+a"].parents == ("A",)
    assert dag.nodes["T+a"].parents == ("S+b",)
    assert dag.throttles == {"S+c": 3, "T+c": 3}


def test_a_file_that_contains_itself_is_refused(tmp_path: Path) -> None:
    assert "contains itself" in errors(tmp_path, "INCLUDE x.dag")[0]
    assert "contains itself" in errors(tmp_path, "SPLICE S x.dag")[0]


def test_many_parents_of_many_children_are_joined_by_a_hidden_node(tmp_path: Path) -> None:
    nodes = "".join(f"JOB {name} a.sub\n" for name in "ABCD")
    dag = read(tmp_path, f"{nodes}PARENT A B CHILD C D")
    assert dag.nodes["_condor_join_node1"].kind is Kind.JOIN
    assert dag.nodes["C"].parents == ("_condor_join_node1",)


def test_an_inline_description_is_kept_as_it_stands(tmp_path: Path) -> None:
    first = "JOB A {\n executable = a.sh\n  # no\n arguments = 1 \\\n 2\n} NOOP\n"
    text = f"{first}JOB B @=end\n x = }}\n@end\n"
    dag = read(tmp_path, text)
    assert dag.nodes["A"].text == " executable = a.sh\n arguments = 1 \\\n 2"
    assert dag.nodes["A"].noop
    assert dag.nodes["B"].text == " x = }"


def test_a_cycle_is_found_and_named(tmp_path: Path) -> None:
    nodes = "".join(f"JOB {name} a.sub\n" for name in "ABC")
    dag = read(tmp_path, f"{nodes}PARENT A CHILD B\nPARENT B CHILD C\nPARENT C CHILD B")
    (finding,) = findings_of(dag)
    assert finding.message == "a cycle: B -> C -> B"


def test_all_nodes_are_those_of_the_file_but_final_and_service(tmp_path: Path) -> None:
    text = "JOB A a.sub\nFINAL F a.sub\nSERVICE W a.sub\nSPLICE S in.dag\nRETRY ALL_NODES 2"
    dag = read(tmp_path, text, **{"in": "JOB b a.sub"})
    assert {name: node.retries for name, node in dag.nodes.items()} == {
        "A": 2, "F": None, "W": None, "S+b": None,
    }  # fmt: skip


def test_quotes_in_the_line_of_a_script_are_text(tmp_path: Path) -> None:
    dag = read(tmp_path, 'JOB A a.sub\nSCRIPT POST A run.sh "it\'s one" $RETURN')
    assert dag.nodes["A"].post is not None
    assert dag.nodes["A"].post.arguments == ("\"it's", 'one"', "$RETURN")


def test_nodes_of_several_files_are_told_apart_by_their_number(tmp_path: Path) -> None:
    (tmp_path / "y.dag").write_text("JOB A a.sub\nRETRY ALL_NODES 1")
    (tmp_path / "x.dag").write_text("JOB A a.sub")
    dag = Reading(base=tmp_path).read(["x.dag", "y.dag"])
    assert {name: node.retries for name, node in dag.nodes.items()} == {"0.A": None, "1.A": 1}
