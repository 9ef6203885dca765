"""Snakemake runs its jobs on GridBot: `snakemake --executor gridbot`.

Snakemake finds this package by its name.
"""

from dataclasses import dataclass, field

from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

from snakemake_executor_plugin_gridbot.executor import GridbotExecutor

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

# The names below are those that Snakemake looks for.
Executor = GridbotExecutor
common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=True,
    job_deploy_sources=True,
    auto_deploy_default_storage_provider=False,
    can_transfer_local_files=True,
)


def _setting(text: str) -> dict[str, object]:
    return {"help": text, "env_var": False, "required": False}


@dataclass
class ExecutorSettings(ExecutorSettingsBase):  # type: ignore[misc]  # of a package without types
    """Options of the command `snakemake`, each with `--gridbot-` before it."""

    server: str = field(
        default="", metadata=_setting("URL of the server, unless `gridbot login` has set it.")
    )
    key_file: str = field(default="", metadata=_setting("File with your key."))
    policy: str = field(
        default="", metadata=_setting("Policy of the jobs: a text, or an .ad file.")
    )
    image: str = field(
        default="", metadata=_setting("Container image of the jobs, which has Snakemake.")
    )
    python: str = field(
        default="",
        metadata=_setting(
            "Python there that has Snakemake; without an image that which the client runs on."
        ),
    )
    files: str = field(
        default="",
        metadata=_setting(
            "Files for all jobs that no rule names, as patterns with blanks between them; what git"
            " manages is among them."
        ),
    )
    network: bool = field(
        default=False, metadata=_setting("Jobs need the network, as for conda and storage plugins.")
    )
    reuse: bool = field(
        default=False, metadata=_setting("Run no job again of which your BOTs have the answer.")
    )
