from tests.system.deployment import Deployment


def test_three_commands_lead_to_a_first_result(fresh: Deployment) -> None:
    fresh.start()
    fresh.client("client", "--cpus", "1")
    fresh.run("submit", "--range", "0:3", "--wait", "--", "echo", "square of {}")
    with fresh.session() as session:
        lines = [result.stdout for result in session.bot(1).results()]
    assert sorted(lines) == ["square of 0\n", "square of 1\n", "square of 2\n"]
