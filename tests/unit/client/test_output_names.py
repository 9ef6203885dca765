"""Names of outputs that placeholders make: all usable, no two the same, none from outside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridbot_client.protocol.fields import is_file_name
from gridbot_client.protocol.manifest import NAMING, Manifest
from gridbot_client.protocol.messages import ProtocolError, Scalar
from gridbot_client.protocol.output_names import NamedOutput, has_templates, output_names
from gridbot_client.protocol.template import TemplateError


def manifest(*outputs: str, **names: str) -> Manifest:
    renamed = {found.replace("__", "."): name for found, name in names.items()}
    types = {"i": "int", "name": "text", "other": "text"}
    return Manifest("a", ("p",), placeholders=types, outputs=outputs, output_names=renamed)


def named(item: Manifest, **args: Scalar) -> list[tuple[str, str]]:
    return [tuple(pair) for pair in output_names(item, {"i": 7, **args})]  # type: ignore[misc]


def test_placeholders_name_what_a_program_leaves_and_what_comes_back() -> None:
    item = manifest("stdout", "part-{i}.txt", "r.csv", "logs/{name}-*", r__csv="{name}/r-{i}.csv")
    assert named(item, name="x") == [
        ("stdout", "stdout"),
        ("part-7.txt", "part-7.txt"),
        ("r.csv", "x/r-7.csv"),
        ("logs/x-*", "logs/x-*"),
    ]
    assert has_templates(item)
    assert not has_templates(manifest("stdout", "a.csv", a__csv="b.csv"))


@pytest.mark.parametrize(
    ("outputs", "names", "args", "message"),
    [
        (("{name}.csv",), {}, {"name": "../x"}, "'../x.csv' is not a usable file name"),
        (("{name}",), {}, {"name": "/etc/passwd"}, "'/etc/passwd' is not a usable file name"),
        (("{name}",), {}, {"name": "-rf"}, "'-rf' is not a usable file name"),
        (("{i}.csv",), {}, {"i": -7}, "'-7.csv' is not a usable file name"),
        (("{name}",), {}, {"name": ""}, "'' is not a usable file name"),
        (("{name}",), {}, {"name": "a\nb"}, "is not a usable file name"),
        (("{name}",), {}, {"name": "*"}, "'*' is not a usable file name"),
        (("{name}-*",), {}, {"name": "*"}, "'{name}-*' would be '*-*', which is no usable"),
        (("{name}/*",), {}, {"name": ".."}, "would be '../*', which is no usable pattern"),
        (("{name}",), {}, {"name": "stdout"}, "output '{name}' would be 'stdout', which is a str"),
        (("a",), {"a": "{name}"}, {"name": "stderr"}, "output '{name}' would be 'stderr', which"),
        (("{name}", "{other}"), {}, {"name": "b", "other": "b"}, ""),
        (("a", "b"), {"a": "x-{i}", "b": "x-7"}, {}, "'a' and 'b' would both be 'x-7'"),
        (("a", "b"), {"a": "b", "b": "c"}, {}, "output 'a' would be 'b', which is another output"),
        (("{name}", "b"), {"b": "c"}, {"name": "c"}, "would both be 'c'"),
        (("{gone}",), {}, {}, "placeholder {gone} has no type"),
    ],
)
def test_names_that_no_file_may_have_are_refused_by_name(
    outputs: tuple[str, ...], names: dict[str, str], args: dict[str, Scalar], message: str
) -> None:
    item = manifest(*outputs, **names)
    if not message:  # twice the same file is one output
        assert set(output_names(item, args)) == {NamedOutput("b", "b")}
        return
    with pytest.raises(TemplateError) as caught:
        named(item, **args)
    assert message in str(caught.value)


TEXT = st.text(max_size=12) | st.sampled_from(["..", "a/../b", "*", "stdout", ".", "a", "b", "[x]"])


@given(TEXT, TEXT, st.integers())
def test_whatever_the_values_no_name_leaves_the_jobs_directory(
    name: str, other: str, i: int
) -> None:
    item = manifest("{name}-{i}", "{other}", "r", r="{other}/{name}")
    try:
        pairs = output_names(item, {"name": name, "other": other, "i": i})
    except TemplateError:
        return
    assert all(is_file_name(text) for pair in pairs for text in pair)
    assert len({pair.name for pair in pairs}) == len(set(pairs))


def test_older_clients_do_not_get_such_a_bot() -> None:
    for item in (manifest("{i}.csv"), manifest("a", a="b")):
        assert f'"version":{NAMING}' in item.text()
        assert Manifest.from_text(item.text()).output_names == item.output_names
        with pytest.raises(ProtocolError):
            Manifest.from_text(item.text().replace(f'"version":{NAMING}', '"version":4'))
    assert '"version":2' in manifest("a.csv", "*.dat").text()
