from __future__ import annotations

import os
import re
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from config.env import NUMBERS, ROOT, WORDS, Environment, key_file, read
from tasks.conf import Conf


def reading(tmp_path: Path, **environ: str) -> Environment:
    return read(environ, root=tmp_path)


def test_an_empty_environment_gives_the_defaults(tmp_path):
    env = reading(tmp_path)
    expected = Conf(
        var_dir=tmp_path / "var",
        audit_key=bytes.fromhex((tmp_path / "var/audit.key").read_text()),
        secrets_key=bytes.fromhex((tmp_path / "var/secrets.key").read_text()),
        signing_key=bytes.fromhex((tmp_path / "var/signing.key").read_text()),
        workspaces_dir=tmp_path / "var/workspaces",
    )
    assert env.conf == expected
    assert (env.debug, env.https, env.host, env.port) == (False, False, "127.0.0.1", 8000)
    assert env.allowed_hosts == ["127.0.0.1", "[::1]", "localhost"]
    assert env.database["NAME"] == str(tmp_path / "var/pilothouse.sqlite3")


def test_a_new_database_is_its_owners_alone(tmp_path):
    """Also in a folder that others may enter; one that is there stays as it is."""
    (tmp_path / "var").mkdir(mode=0o755)
    path = Path(reading(tmp_path).database["NAME"])
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE words (word)")
        files = [path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")]
        assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 3
    path.chmod(0o640)
    reading(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_values_arrive_with_their_types(tmp_path):
    env = reading(
        tmp_path,
        PILOTHOUSE_LLM_BASE_URL="http://127.0.0.1:9/v1/",
        PILOTHOUSE_LLM_MODEL="small",
        PILOTHOUSE_LLM_STREAM="off",
        PILOTHOUSE_MAX_AGENT_STEPS="3",
        PILOTHOUSE_MAX_TASK_COST="0.5",
        PILOTHOUSE_MODE="read_only",
        PILOTHOUSE_APPROVER_GROUPS="shell:execute=the operators, network=security",
        PILOTHOUSE_OTHER_APPROVER="delete",
        PILOTHOUSE_REMIND_AT="0.25, 900",
        EMAIL_URL="smtp+tls://me:secret@mail.example:587",
        DEBUG="1",
    )
    assert env.conf.llm_base_url == "http://127.0.0.1:9/v1"
    assert env.conf.llm_stream is False
    assert env.conf.max_agent_steps == 3
    assert env.conf.max_task_cost == 0.5
    assert env.conf.mode == "read_only"
    assert env.debug is True
    assert env.conf.approver_groups == {"shell:execute": "the operators", "network": "security"}
    assert env.conf.other_approver == ("delete",)
    assert env.conf.remind_at == (0.25, 900.0)
    assert env.email.items() >= {"EMAIL_USE_TLS": True, "EMAIL_PORT": 587}.items()
    assert env.email["EMAIL_HOST"] == "mail.example"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("PILOTHOUSE_MAX_AGENT_STEPS", "abc", "write a whole number, not 'abc'"),
        ("PILOTHOUSE_MAX_AGENT_STEPS", "0", "of at least 1"),
        ("PILOTHOUSE_MAX_TASK_SECONDS", "nan", "write a number"),
        ("PILOTHOUSE_REMIND_AT", "soon", "write never, or parts of the time"),
        ("PILOTHOUSE_REMIND_AT", "0.5, -1", "write never, or parts of the time"),
        ("PILOTHOUSE_NOTIFY_URL", "https://hooks.example", "must be signed"),
        ("PILOTHOUSE_NOTIFY_KEY", "whsec_c2hvcnQ=", "24 to 64 random bytes"),
        ("PILOTHOUSE_MAIL_FROM", "us@example.com", "say how to send mail"),
        ("EMAIL_URL", "mail.example", "write smtp+tls://"),
        ("PILOTHOUSE_TWO_APPROVERS", "write, Shell", "write capabilities like shell:execute"),
        ("PILOTHOUSE_APPROVER_GROUPS", "write", "write capability=group, not 'write'"),
        ("PILOTHOUSE_MAX_TASK_SECONDS", "inf", "write a number"),
        ("PILOTHOUSE_MAX_AGENT_STEP", "3", "did you mean PILOTHOUSE_MAX_AGENT_STEPS?"),
        ("PILOTHOUSE_QQQQ", "3", ".env.example lists all of them"),
        ("PILOTHOUSE_MODE", "yes", "write ask, deny or read_only, not 'yes'"),
        ("PILOTHOUSE_UNATTENDED_MODE", "allow", "write ask, deny or read_only"),
        ("PILOTHOUSE_LLM_PROVIDER", "other", "write openai or scripted"),
        ("PILOTHOUSE_LLM_STREAM", "perhaps", "write 1 or 0"),
        ("PILOTHOUSE_LLM_BASE_URL", "example/v1", "write a URL like"),
        ("PILOTHOUSE_LLM_BASE_URL", "http://[::1/v1", "write a URL like"),
        ("PILOTHOUSE_PUBLIC_URL", "http://pilot.example", "plain http is for loopback only"),
        ("PILOTHOUSE_AUDIT_KEY", "short", "write 64 hexadecimal digits"),
        ("PILOTHOUSE_SECRETS_KEY", "short", "write 64 hexadecimal digits"),
        ("PILOTHOUSE_MAX_DAY_TOKENS", "1.5", "write a whole number"),
        ("PILOTHOUSE_PORT", "70000", "write a port number"),
        ("PORT", "http", "write a port number"),
        ("DEBUG", "maybe", "write 1 or 0"),
        ("DATABASE_URL", "mysql://u:p@host/db", "write postgres://user:password@host/name"),
        ("DATABASE_URL", "nonsense", "write postgres://user:password@host/name"),
        ("DATABASE_URL", "sqlite://:memory:", "must be a file"),
        ("REDIS_URL", "redis://host", "need PostgreSQL; write DATABASE_URL=postgres://"),
        ("REDIS_URL", "host:6379", "write redis://host:6379/0"),
        ("PILOTHOUSE_ENABLE_SHELL", "maybe", "write 1 or 0"),
        ("PILOTHOUSE_SHELL_MEMORY_MB", "1", "at least 64"),
        ("PILOTHOUSE_VAR_DIR", "/dev/null/var", "folder /dev/null/var: Not a directory."),
        ("PILOTHOUSE_MCP_SERVERS", "/no.json", "/no.json cannot be read: No such file or"),
    ],
)
def test_a_wrong_setting_is_one_sentence_that_names_it(tmp_path, name, value, says):
    with pytest.raises(ImproperlyConfigured) as refused:
        reading(tmp_path, **{name: value})
    message = str(refused.value)
    assert message.startswith(f"{name}: ")
    assert says in message
    assert "\n" not in message


def test_an_address_that_may_be_a_secret_is_not_said_again(tmp_path):
    for name in ("PILOTHOUSE_NOTIFY_URL", "PILOTHOUSE_LLM_BASE_URL"):
        with pytest.raises(ImproperlyConfigured, match=f"{name}: write a URL") as refused:
            reading(tmp_path, **{name: "hooks.example/a-secret"})
        assert "a-secret" not in str(refused.value)


def test_a_redis_beside_postgresql_means_scale_out(tmp_path):
    postgres = "postgres://u:p@host/name"
    env = reading(tmp_path, DATABASE_URL=postgres, REDIS_URL="redis://host:6379/0")
    assert env.conf.scale_out
    assert not reading(tmp_path, DATABASE_URL=postgres).conf.scale_out
    assert "host:6379" not in repr(env.conf), "a Redis URL may hold a password"


AT_REST = {
    *("procrastinate", "channels_redis", "redis", "html_to_markdown"),
    *("mcp", "mcp_types", "httpx2", "starlette", "opentelemetry"),
}


def test_embedded_mode_imports_no_queue_no_mcp_and_nothing_that_reads_pages():
    """In a fresh interpreter: a server and the commands, as far as imports go."""
    program = (
        "import sys, config.asgi, tasks.management.commands.run_task, tasks.management.commands.worker\n"
        f"print(sorted({AT_REST} & set(sys.modules)))"
    )
    state = {"DATABASE_URL": "", "REDIS_URL": ""}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, **state},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_an_endpoint_without_a_model_is_refused(tmp_path):
    with pytest.raises(ImproperlyConfigured, match=r"PILOTHOUSE_LLM_MODEL: .*_LLM_BASE_URL"):
        reading(tmp_path, PILOTHOUSE_LLM_BASE_URL="http://127.0.0.1:9/v1")


def test_the_environment_wins_over_the_env_file(tmp_path):
    (tmp_path / ".env").write_text("PILOTHOUSE_MAX_AGENT_STEPS=3\nPILOTHOUSE_REPEAT_LIMIT=4\n")
    env = reading(tmp_path, PILOTHOUSE_MAX_AGENT_STEPS="5")
    assert (env.conf.max_agent_steps, env.conf.repeat_limit) == (5, 4)
    assert "PILOTHOUSE_REPEAT_LIMIT" not in os.environ


def test_a_typo_in_the_env_file_is_refused_too(tmp_path):
    (tmp_path / ".env").write_text("PILOTHOUSE_MODEL=x\n")
    with pytest.raises(ImproperlyConfigured, match=r"PILOTHOUSE_MODEL: there is no such setting"):
        reading(tmp_path)


def test_every_setting_is_in_the_example_file():
    listed = (ROOT / ".env.example").read_text()
    names = {f"PILOTHOUSE_{name}" for name in NUMBERS.keys() | WORDS}
    names |= {"DATABASE_URL", "SECRET_KEY", "DEBUG", "ALLOWED_HOSTS", "PORT"}
    assert sorted(name for name in names if f"\n#{name}=" not in listed) == []


def test_the_example_file_is_accepted_line_by_line(tmp_path):
    lines = (ROOT / ".env.example").read_text().splitlines()
    settings = [line.removeprefix("#") for line in lines if re.match(r"#[A-Z_]+=", line)]
    assert len(settings) > 30
    (tmp_path / ".env").write_text("\n".join(s for s in settings if not s.endswith("=")))
    reading(tmp_path)


def test_remarks_behind_values_are_no_part_of_them(tmp_path):
    lines = [
        "PILOTHOUSE_LLM_BASE_URL='http://127.0.0.1:11434/v1' # local",
        "PILOTHOUSE_LLM_MODEL=qwen3#latest",
        "export PILOTHOUSE_LLM_API_KEY=sk-1  # where one is needed",
    ]
    (tmp_path / ".env").write_text("\n".join(lines))
    conf = reading(tmp_path).conf
    assert conf.llm_base_url == "http://127.0.0.1:11434/v1"
    assert (conf.llm_model, conf.llm_api_key) == ("qwen3#latest", "sk-1")


def test_a_line_that_sets_nothing_stops_the_start(tmp_path):
    (tmp_path / ".env").write_text("\nPILOTHOUSE_LLM_MODEL qwen3\n")
    with pytest.raises(ImproperlyConfigured, match="line 2"):
        reading(tmp_path)


def test_no_key_is_part_of_what_a_conf_shows(tmp_path):
    conf = reading(tmp_path, PILOTHOUSE_LLM_API_KEY="sk-CANARY").conf
    assert "CANARY" not in repr(conf)
    assert conf.audit_key.hex() not in repr(conf)
    assert "audit_key" not in repr(conf)


def test_the_public_address_decides_hosts_and_security(tmp_path):
    env = reading(tmp_path, PILOTHOUSE_PUBLIC_URL="https://pilot.example")
    assert env.https
    assert "pilot.example" in env.allowed_hosts
    assert env.conf.origin == "https://pilot.example"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:9000"),
        ("::1", "http://[::1]:9000"),
        ("localhost", "http://localhost:9000"),
    ],
)
def test_by_default_the_public_address_is_where_the_server_listens(tmp_path, host, url):
    env = reading(tmp_path, PILOTHOUSE_HOST=host, PORT="9000")
    assert env.conf.public_url == url


def test_paths_are_found_from_the_project_root(tmp_path):
    env = reading(
        tmp_path,
        PILOTHOUSE_VAR_DIR="state",
        PILOTHOUSE_WORKSPACES_DIR="work",
        DATABASE_URL="sqlite:///data.sqlite3",
    )
    assert env.conf.var_dir == tmp_path / "state"
    assert env.conf.workspaces_dir == tmp_path / "work"
    assert env.database["NAME"] == str(tmp_path / "data.sqlite3")


def test_the_servers_skills_are_a_folder_that_is_there(tmp_path):
    assert reading(tmp_path).conf.skills_dir is None
    (tmp_path / "skills").mkdir()
    assert reading(tmp_path, PILOTHOUSE_SKILLS_DIR="skills").conf.skills_dir == tmp_path / "skills"
    with pytest.raises(ImproperlyConfigured, match="PILOTHOUSE_SKILLS_DIR: there is no folder"):
        reading(tmp_path, PILOTHOUSE_SKILLS_DIR="nowhere")


def test_postgresql_when_the_url_says_so(tmp_path):
    env = reading(tmp_path, DATABASE_URL="postgres://alice:pw@db.example:5433/pilot")
    assert env.database["ENGINE"] == "django.db.backends.postgresql"
    assert (env.database["HOST"], env.database["PORT"]) == ("db.example", 5433)


def test_a_database_that_vanished_is_noticed(tmp_path):
    url = "postgres://u:p@host/db?keepalives_idle=60&application_name=pilot"
    options = reading(tmp_path, DATABASE_URL=url).database["OPTIONS"]
    assert (options["keepalives_idle"], options["keepalives_count"]) == (60, 3)
    assert options["application_name"] == "pilot"


def test_a_key_is_made_once_and_only_we_may_read_it(tmp_path):
    path = tmp_path / "secret.key"
    key = key_file(path, "SECRET_KEY")
    assert key_file(path, "SECRET_KEY") == key
    assert len(bytes.fromhex(key)) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_starters_at_the_same_moment_agree_on_the_key(tmp_path):
    path = tmp_path / "secret.key"
    with ThreadPoolExecutor(16) as pool:
        keys = list(pool.map(lambda _: key_file(path, "SECRET_KEY"), range(64)))
    assert set(keys) == {path.read_text().strip()}
    assert list(tmp_path.iterdir()) == [path]


def test_processes_at_the_same_moment_agree_on_the_key(tmp_path):
    program = (
        "import pathlib, sys; from config.env import key_file; print('ready', flush=True);"
        "sys.stdin.readline(); print(key_file(pathlib.Path(sys.argv[1]), 'SECRET_KEY'))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "secret.key")]
    racers = [
        subprocess.Popen(
            command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(3)
    ]
    ready = [racer.stdout.readline() for racer in racers if racer.stdout]
    assert ready == ["ready\n"] * 3
    for racer in racers:
        if racer.stdin:
            racer.stdin.write("go\n")
            racer.stdin.flush()
    assert len({racer.communicate()[0] for racer in racers}) == 1


def test_a_damaged_key_file_is_refused_not_replaced(tmp_path):
    path = tmp_path / "audit.key"
    path.write_text("oops")
    with pytest.raises(ImproperlyConfigured, match="restore it from a backup"):
        key_file(path, "PILOTHOUSE_AUDIT_KEY")
    assert path.read_text() == "oops"


def test_a_command_with_a_wrong_setting_exits_2_without_traceback(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "manage.py", "check"],
        env={**os.environ, "PILOTHOUSE_VAR_DIR": str(tmp_path), "PILOTHOUSE_MODE": "yes"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    expected = "pilothouse: PILOTHOUSE_MODE: write ask, deny or read_only, not 'yes'.\n"
    assert done.stderr == expected


def test_mcp_servers_are_json_or_a_file_with_it(tmp_path):
    text = '{"notes": {"command": "notes", "tools": {"find": {"capability": "notes:read"}}}}'
    assert reading(tmp_path, PILOTHOUSE_MCP_SERVERS=text).conf.mcp_servers.keys() == {"notes"}
    (tmp_path / "mcp.json").write_text(text)
    found = reading(tmp_path, PILOTHOUSE_MCP_SERVERS="mcp.json").conf
    assert found.mcp_servers["notes"].tools["find"].offered_as == "mcp_notes_find"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mcp.json", "the path of a file with one; "),
        ('{"notes": {"tools": {}}}', "notes: write either command"),
        ('{"notes": {"command": "x", "reads": ["VAR"], "tools": TOOLS}}', "would show keys of"),
        ('{"notes": {"command": "x", "reads": ["/"], "tools": TOOLS}}', "would show keys of"),
    ],
)
def test_mcp_servers_that_cannot_be_stop_the_start(tmp_path, text, said):
    (tmp_path / "var/keys").mkdir(parents=True)
    text = text.replace("TOOLS", '{"find": {"capability": "notes:read"}}')
    text = text.replace("VAR", str(tmp_path / "var/keys"))
    with pytest.raises(ImproperlyConfigured, match=r"^PILOTHOUSE_MCP_SERVERS: ") as refused:
        reading(tmp_path, PILOTHOUSE_MCP_SERVERS=text)
    assert said in str(refused.value)
