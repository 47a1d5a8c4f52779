"""Which tools a run has, by the settings."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tasks import toolboxes

BEYOND_FILES = {"run_command", "fetch_url"}


def test_tools_that_reach_further_are_off_until_a_setting_turns_them_on(settings):
    assert not BEYOND_FILES & set(toolboxes.toolbox().names)
    changed = {"enable_shell": True, "shell_seconds": 7.0}
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, **changed)
    box = toolboxes.toolbox()
    tool = box.get("run_command")
    assert tool is not None
    assert BEYOND_FILES & set(box.names) == {"run_command"}
    assert "at most 7 seconds" in tool.description
    assert toolboxes.toolbox() is box
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, enable_web=True)
    assert set(toolboxes.toolbox().names) >= BEYOND_FILES


def test_a_command_does_not_see_where_the_server_lies(settings):
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, enable_shell=True)
    tool = toolboxes.toolbox().get("run_command")
    assert tool is not None
    assert isinstance(tool.run, partial)
    conf = settings.PILOTHOUSE
    hidden = {toolboxes.PROJECT, conf.var_dir, conf.workspaces_dir}
    assert set(tool.run.args[0].hidden) == hidden
    assert (toolboxes.PROJECT / "manage.py").is_file()
