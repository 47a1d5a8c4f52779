"""Model profiles: which one a run asks, what stands in for it, and where its key never appears."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import Client

from agent.providers.quirks import Quirks
from tasks import profiles, secrets, service, wiring
from tasks.commands import TaskRequest
from tasks.errors import Invalid
from tasks.models import AuditEntry, LearntQuirks, ModelProfile, Session, Task, TaskEvent
from tasks.profiles import NewKey
from tasks.writer import writer
from tests.support.people import bearer
from tests.support.profiles import CANARY, make_profile
from tests.support.provider_server import ProviderServer
from tests.support.rows import make_session, make_task, make_user
from tests.support.runs import House, make_house

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return make_house(tmp_path / "desk")


@pytest.fixture(autouse=True)
def quick(settings: Any) -> None:
    settings.PILOTHOUSE = replace(
        settings.PILOTHOUSE, llm_attempts=2, variables={"DEEP_KEY": CANARY, "EMPTY": " "}
    )


async def make(name: str = "main", key: str = "", **fields: Any) -> ModelProfile:
    return await sync_to_async(make_profile)(name, key, **fields)


def choice(task: Task) -> wiring.Choice:
    return wiring.Models().choose(Task.objects.select_related("session").get(pk=task.pk))


# ── which model ───────────────────────────────────────────────────────────────────────────────


def test_a_task_s_model_wins_over_its_session_s_and_that_over_the_default(settings: Any) -> None:
    settings.PILOTHOUSE = replace(
        settings.PILOTHOUSE, llm_base_url="http://127.0.0.1:9/v1", llm_model="of-the-settings"
    )
    session = make_session()
    task = make_task(session)
    assert choice(task).name == "of-the-settings"
    assert choice(task).models[0].context_tokens == 100_000
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, llm_context_tokens=32_000)
    assert choice(task).models[0].context_tokens == 32_000
    make_profile("main")
    assert choice(task).name == "model-of-main"
    Session.objects.update(model_profile=make_profile("second"))
    assert choice(task).name == "model-of-second"
    Task.objects.update(model_profile=make_profile("third"))
    assert choice(task).name == "model-of-third"
    profiles.delete(ModelProfile.objects.get(name="third"), by="root")
    assert choice(task).name == "model-of-second"


def test_without_any_model_the_demo_or_a_sentence(settings: Any) -> None:
    task = make_task()
    with pytest.raises(wiring.NoModel) as caught:
        choice(task)
    assert "PILOTHOUSE_LLM_BASE_URL" in caught.value.hint
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, demo_model=True)
    assert choice(task).name


def test_only_one_profile_is_the_default() -> None:
    make_profile("main")
    make_profile("next", is_default=True)
    assert [row.name for row in ModelProfile.objects.filter(is_default=True)] == ["next"]


def test_a_profile_s_limits_are_at_most_the_server_s(house: House) -> None:
    profile = make_profile(limits={"steps": 3, "tokens": 5000, "seconds": 10_000})
    task = make_task(make_session(house.workspace), limits={"tokens": 900})
    limits = wiring.limits_for(task, profile.limits)
    assert (limits.max_steps, limits.max_seconds, limits.max_tokens) == (3, 300, 900)


def test_stand_ins_follow_in_order_and_never_in_a_circle() -> None:
    third = make_profile("third")
    second = make_profile("second", fallback=third)
    first = make_profile("main", fallback=second)
    assert [row.name for row in profiles.with_fallbacks(first)] == ["main", "second", "third"]
    third.fallback = first
    assert "fallback" in profiles.problems(third)
    ModelProfile.objects.filter(pk=third.pk).update(fallback=first)
    first.refresh_from_db()
    assert len(profiles.with_fallbacks(first)) == 3


# ── keys ──────────────────────────────────────────────────────────────────────────────────────


def test_a_key_is_sealed_and_comes_back_only_through_its_door() -> None:
    profile = make_profile(key=CANARY)
    row = ModelProfile.objects.get()
    assert CANARY not in json.dumps(list(ModelProfile.objects.values()), default=str)
    assert profiles.key_of(row) == CANARY
    assert profiles.key_hint(row) == "set, not shown"
    assert CANARY not in repr(vars(profile))


def test_a_reference_is_read_from_the_environment_and_missed_with_a_sentence() -> None:
    assert profiles.key_of(make_profile(key="env:DEEP_KEY")) == CANARY
    with pytest.raises(profiles.KeyMissing, match="GONE, which is not set"):
        profiles.key_of(make_profile("b", key="env:GONE"))
    with pytest.raises(profiles.KeyMissing, match="EMPTY"):
        profiles.key_of(make_profile("c", key="env:EMPTY"))


@pytest.mark.parametrize("name", ["SECRET_KEY", "PILOTHOUSE_AUDIT_KEY", "PILOTHOUSE_SECRETS_KEY"])
def test_our_own_secrets_are_no_keys_for_models(name: str) -> None:
    assert "not sent to a model" in profiles.key_problem(f"env:{name}")
    assert profiles.key_problem("env:PILOTHOUSE_LLM_API_KEY") == ""


def test_another_base_url_erases_the_key() -> None:
    for key in (CANARY, "env:DEEP_KEY"):
        profile = make_profile(key=key)
        profile.model = "newer"
        profiles.save(profile, by="root")
        assert ModelProfile.objects.get().key
        profile.base_url = "http://elsewhere.example/v1"
        profiles.save(profile, by="root")
        assert profiles.key_of(ModelProfile.objects.get()) == ""
        profile.base_url = "http://third.example/v1"
        profiles.save(profile, by="root", key=NewKey(text="fresh"))
        assert profiles.key_of(ModelProfile.objects.get()) == "fresh"
        profile.delete()


def test_a_key_sealed_with_another_key_says_so(settings: Any) -> None:
    profile = make_profile(key=CANARY)
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, secrets_key=bytes(32))
    with pytest.raises(profiles.KeyMissing, match="PILOTHOUSE_SECRETS_KEY"):
        profiles.key_of(profile)
    with pytest.raises(secrets.SecretUnreadable):
        secrets.unseal("sealed:nonsense")


def test_the_audit_says_who_changed_what_and_no_key() -> None:
    profile = make_profile(key=CANARY)
    profile.model = "newer"
    profiles.save(profile, by="dora", key=NewKey(text="sk-live-OTHER-1"))
    profiles.delete(profile, by="dora")
    entries = list(AuditEntry.objects.order_by("sequence"))
    assert [entry.action for entry in entries] == ["model.made", "model.changed", "model.deleted"]
    assert "newer" in entries[1].details
    assert "the key changed" in entries[1].details
    assert "sk-live" not in "".join(entry.details for entry in entries)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("base_url", "ftp://host/v1"),
        ("base_url", "https://user:pass@host/v1"),
        ("base_url", "host"),
        ("limits", {"stepps": 3}),
        ("limits", {"steps": 0}),
        ("options", {"messages": []}),
        ("options", []),
        ("quirks", {"strem": False}),
        ("quirks", {"stream": "no"}),
        ("currency", "euro"),
        ("price_input", -1),
    ],
)
def test_nonsense_is_refused_by_field(field: str, value: Any) -> None:
    profile = ModelProfile(name="x", base_url="http://host/v1", model="m")
    setattr(profile, field, value)
    assert profiles.problems(profile)


def test_all_prices_are_in_one_currency() -> None:
    make_profile(price_input=1, price_output=2, currency="EUR")
    other = ModelProfile(name="x", base_url="http://host/v1", model="m")
    assert profiles.problems(other) == {}
    other.price_input, other.price_output = 1, 2
    assert "EUR" in profiles.problems(other)["currency"]


# ── runs ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_run_asks_its_profile_with_key_and_options(house: House) -> None:
    async with ProviderServer() as server:
        await make(key=CANARY, base_url=server.url("normal"), options={"temperature": 0.5})
        async with house.runner(models=wiring.Models()):
            created = await house.ask()
            task = await house.until(created.task_id, "completed")
    request = server.requests[0]
    assert request.headers["authorization"] == f"Bearer {CANARY}"
    assert (request.body["model"], request.body["temperature"]) == ("model-of-main", 0.5)
    assert task.final_answer == "Hello."


async def test_a_stand_in_takes_over_when_the_first_stays_unreachable(house: House) -> None:
    async with ProviderServer() as server:
        backup = await make("backup", base_url=server.url("normal"))
        await make(base_url=server.url("dropped"), fallback=backup)
        async with house.runner(models=wiring.Models()):
            created = await house.ask()
            await house.until(created.task_id, "completed")
    rows = [(row.type, json.loads(row.payload)) for row in await house.log(created.task_id)]
    asked = [body["model"] for kind, body in rows if kind == "model_call_started"]
    assert asked == ["model-of-main", "model-of-main", "model-of-backup"]
    errors = [body["error"]["code"] for kind, body in rows if kind == "model_call_retried"]
    assert errors == ["provider_unreachable"] * 2


async def test_a_refused_key_is_for_people_not_for_a_stand_in(house: House) -> None:
    async with ProviderServer() as server:
        backup = await make("backup", base_url=server.url("normal"))
        await make(key=CANARY, base_url=server.url("unauthorized"), fallback=backup)
        async with house.runner(models=wiring.Models()):
            created = await house.ask()
            task = await house.until(created.task_id, "failed")
    assert task.error is not None
    assert task.error["code"] == "provider_auth"
    stored = "".join([row.payload async for row in TaskEvent.objects.all()])
    assert "CANARY" not in stored
    assert "CANARY" not in json.dumps(task.error)


async def test_a_missing_key_fails_the_task_and_says_what_to_do(house: House) -> None:
    await make(key="env:GONE")
    async with house.runner(models=wiring.Models()):
        created = await house.ask()
        task = await house.until(created.task_id, "failed")
    assert task.error is not None
    assert "GONE" in task.error["message"]
    assert "profile" in task.error["hint"]


async def test_what_a_run_learns_is_in_the_profile_and_nobody_s_edit_is_lost(house: House) -> None:
    async with ProviderServer() as server:
        profile = await make(base_url=server.url("streamless"), quirks={"short_ids": True})
        async with house.runner(models=wiring.Models()):
            created = await house.ask()
            await house.until(created.task_id, "completed")
        row = await ModelProfile.objects.aget(pk=profile.pk)
        assert row.quirks == {"stream": False, "short_ids": True}
        server.requests.clear()
        async with house.runner(models=wiring.Models()):
            created = await house.ask()
            await house.until(created.task_id, "completed")
        assert [request.body["stream"] for request in server.requests] == [False]


async def test_what_the_server_of_the_settings_teaches_survives_a_restart(
    house: House, settings: Any
) -> None:
    async with ProviderServer() as server:
        settings.PILOTHOUSE = replace(
            settings.PILOTHOUSE, llm_base_url=server.url("streamless"), llm_model="m"
        )
        for asked in ([True, False], [False]):
            server.requests.clear()
            async with house.runner(models=wiring.Models()):  # anew, as in another process
                created = await house.ask()
                await house.until(created.task_id, "completed")
            assert [request.body["stream"] for request in server.requests] == asked
    row = await LearntQuirks.objects.aget()
    assert row.quirks == {"stream": False}
    assert "127.0.0.1" not in f"{row.pk} {row.quirks}"


def test_learning_leaves_what_others_learnt_meanwhile() -> None:
    profile = make_profile(quirks={"dropped": ["seed"]})
    before, after = Quirks(), Quirks(dropped=("stream_options",), empty_content="")
    writer.run_sync(partial(profiles.remember, profile.pk, before, after))
    assert ModelProfile.objects.get().quirks == {
        "dropped": ["seed", "stream_options"],
        "empty_content": "",
    }


async def test_a_session_that_lost_its_profile_asks_the_default(house: House) -> None:
    async with ProviderServer() as server:
        await make(base_url=server.url("normal"))
        gone = await make("gone")
        async with house.runner(models=wiring.Models()):
            created = await house.ask()
            await house.until(created.task_id, "completed")
            await Session.objects.aupdate(model_profile=gone)
            await sync_to_async(profiles.delete)(gone, by="root")
            request = TaskRequest(
                goal="And now?",
                owner_id=house.alice.pk,
                trigger="api",
                session_id=created.session_id,
            )
            again = await service.create(request)
            await house.until(again.task_id, "completed")


# ── the API ───────────────────────────────────────────────────────────────────────────────────


def send(client: Client, method: str, path: str, body: Any) -> Any:
    return getattr(client, method)(path, body, content_type="application/json")


def test_everybody_sees_the_models_and_nobody_where_they_are(house: House) -> None:
    make_profile(key=CANARY, price_input=1, price_output=2, context_size=8000)
    body = Client(headers=bearer(make_user())).get("/api/models").json()
    [item] = body["items"]
    assert (item["name"], item["context_size"], item["is_default"]) == ("main", 8000, True)
    assert item["prices"] == {"input": 1.0, "cached": None, "output": 2.0, "currency": "USD"}
    assert not {"key", "base_url", "quirks", "options"} & item.keys()


def test_a_session_takes_a_model_and_gives_it_up(house: House) -> None:
    profile = make_profile("second")
    session = make_session(house.workspace)
    alice = Client(headers=bearer(house.alice))
    path = f"/api/sessions/{session.pk}"
    assert send(alice, "patch", path, {"model_profile_id": str(profile.pk)}).json()[
        "model_profile_id"
    ] == str(profile.pk)
    assert send(alice, "patch", path, {"title": "x"}).json()["model_profile_id"]
    assert send(alice, "patch", path, {"model_profile_id": None}).json()["model_profile_id"] is None
    refused = send(alice, "patch", path, {"model_profile_id": "nobody"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unknown_model")


def test_a_task_and_its_retry_take_a_model_by_name(house: House) -> None:
    second, third = make_profile("second"), make_profile("third")
    alice = Client(headers=bearer(house.alice))
    created = send(alice, "post", "/api/tasks", {"goal": "x", "model": "second"}).json()
    assert Task.objects.get(pk=created["id"]).model_profile == second
    Task.objects.update(status=Task.Status.FAILED)
    path = f"/api/tasks/{created['id']}/retry"
    again = send(alice, "post", path, {}).json()
    assert Task.objects.get(pk=again["id"]).model_profile == second
    Task.objects.update(status=Task.Status.FAILED)
    again = send(alice, "post", path, {"model": str(third.pk)}).json()
    assert alice.get(f"/api/tasks/{again['id']}").json()["model_profile_id"] == str(third.pk)


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(Invalid):
        profiles.find("nobody")
