"""BOINC's routes: where stock clients attach, ask for work, report, and fetch and leave files.

Beside them are the routes that a project of BOINC's has for people: accounts, statistics, and
what was signed for stock clients.
"""

from gridbot_server.api.boinc import accounts, managers, passwords, scheduler, signing, statistics

BLUEPRINTS = (
    accounts.blueprint,
    managers.blueprint,
    passwords.blueprint,
    scheduler.blueprint,
    signing.blueprint,
    statistics.blueprint,
)
