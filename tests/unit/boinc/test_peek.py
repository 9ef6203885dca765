"""What a glance at a scheduler request tells before anything of it is decoded."""

from gridbot_server.boinc.protocol.peek import brings_results, client_of


def test_a_boinc_request_with_results_is_known_by_them() -> None:
    held = b"<other_results><other_result><name>x</name></other_result></other_results>"
    head = b"<scheduler_request>\n<hostid>7</hostid>\n"
    assert not brings_results(head + held)
    assert brings_results(head + b"<result>\n<name>x</name>\n</result>" + held)


def test_a_client_of_is_its_account_and_host() -> None:
    request = "<scheduler_request>\n<authenticator>{}</authenticator>\n<hostid>{}</hostid>\n"
    named = {client_of(request.format(*who).encode()) for who in ("a7", "a2", "b7", "a7")}
    assert len(named) == 3
    assert client_of(b"") == client_of(b"<hostid>no number</hostid>")
    assert client_of(request.format("a", "07").encode()) in named
