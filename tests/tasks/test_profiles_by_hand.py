"""Model profiles in people's hands: `check_model`, and the admin, where no key is ever shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.test import AsyncClient, Client
from django.urls import reverse

from tasks import profiles, wiring
from tasks.models import LearntQuirks, ModelProfile
from tests.support.profiles import CANARY, make_profile
from tests.support.provider_server import SSE, ProviderServer, Request, delta, serving
from tests.support.rows import make_user

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def quick(settings: Any) -> None:
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, llm_attempts=2)


# ── trying one out ────────────────────────────────────────────────────────────────────────────


async def obedient(request: Request) -> None:
    """Calls the tool it is given, then answers."""
    await request.head(200, SSE)
    if request.body["messages"][-1]["role"] == "tool":
        await request.events(delta("albatross"), delta("", "stop"), "[DONE]")
    else:
        call = {"index": 0, "id": "c1", "type": "function"}
        call["function"] = {"name": "echo", "arguments": '{"word": "albatross"}'}
        start = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}
        await request.events(start, delta("", "tool_calls"), "[DONE]")
    await request.end()


@pytest.fixture
def server() -> Iterator[ProviderServer]:
    with serving(ProviderServer(obedient=obedient)) as server:
        yield server


def check_model(*arguments: str) -> tuple[int, str]:
    out, err = StringIO(), StringIO()
    with pytest.raises(SystemExit) as left:
        call_command("check_model", *arguments, stdout=out, stderr=err)
    assert isinstance(left.value.code, int)
    return left.value.code, out.getvalue() + err.getvalue()


def test_check_model_says_what_works(server: ProviderServer) -> None:
    make_profile(base_url=server.url("obedient"), key=CANARY)
    status, said = check_model()
    assert status == 0, said
    for what in ("connection", "stream", "tool call", "answer", "usage"):
        assert f"ok    {what}" in said
    assert check_model("nobody")[0] == 2


def test_check_model_says_that_the_demo_is_no_model(settings: Any) -> None:
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, llm_base_url="", demo_model=True)
    status, said = check_model()
    assert status == 1
    assert "the scripted demo plays a fixed part" in said
    assert "FAIL" not in said


@pytest.mark.parametrize(
    ("scene", "says"),
    [
        ("unauthorized", "Check the API key"),
        ("normal", "without calling the tool"),
        ("dropped", "closed the connection"),
        ("proxy", "502 Bad Gateway"),
    ],
)
def test_check_model_says_what_does_not(server: ProviderServer, scene: str, says: str) -> None:
    make_profile(base_url=server.url(scene), key=CANARY)
    status, said = check_model("main")
    assert status == 1
    assert "FAIL" in said
    assert says in said
    assert "CANARY" not in said


def test_check_model_keeps_what_it_learns(server: ProviderServer) -> None:
    make_profile(base_url=server.url("streamless"))
    assert "learnt" in check_model("main")[1]
    assert ModelProfile.objects.get().quirks == {"stream": False}


def test_check_model_forgets_what_is_no_longer_so(server: ProviderServer, settings: Any) -> None:
    settings.PILOTHOUSE = replace(
        settings.PILOTHOUSE, llm_base_url=server.url("normal"), llm_model="m"
    )
    LearntQuirks.objects.create(pk=wiring.server_of_settings(), quirks={"stream": False})
    check_model()
    assert server.requests[-1].body["stream"] is False
    check_model("--forget")
    assert server.requests[-1].body["stream"] is True


def test_check_model_without_a_model_says_how_to_get_one() -> None:
    assert "PILOTHOUSE_LLM_BASE_URL" in check_model()[1]


# ── the admin ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def root() -> User:
    return make_user("root", is_staff=True, is_superuser=True)


def form(profile: ModelProfile, **changes: Any) -> dict[str, Any]:
    fields = {
        "name": profile.name,
        "base_url": profile.base_url,
        "model": profile.model,
        "stream": "on",
        "limits": "{}",
        "options": "{}",
        "quirks": "{}",
        "currency": "USD",
    }
    return fields | changes


def page(profile: ModelProfile) -> str:
    return reverse("admin:tasks_modelprofile_change", args=[profile.pk])


def test_the_admin_takes_a_key_and_never_shows_it(root: User) -> None:
    profile = make_profile()
    client = Client()
    client.force_login(root)
    done = client.post(page(profile), form(profile, new_key=CANARY), follow=True)
    assert done.status_code == 200
    assert profiles.key_of(ModelProfile.objects.get()) == CANARY
    shown = client.get(page(profile)).content.decode()
    assert "set, not shown" in shown
    assert "CANARY" not in shown
    assert "sealed:" not in shown
    client.post(page(profile), form(profile, erase_key="on"))
    assert ModelProfile.objects.get().key == ""
    refused = client.post(page(profile), form(profile, new_key="env:SECRET_KEY")).content.decode()
    assert "not sent to a model" in refused


def test_the_admin_refuses_nonsense_by_field(root: User) -> None:
    profile = make_profile()
    client = Client()
    client.force_login(root)
    shown = client.post(page(profile), form(profile, quirks='{"strem": 1}')).content.decode()
    assert "Write an object with any of" in shown


def test_only_permitted_staff_reach_profiles(root: User) -> None:
    profile = make_profile()
    plain = make_user("plain")
    clerk = make_user("clerk", is_staff=True)
    for user, status in ((plain, 302), (clerk, 403)):
        client = Client()
        client.force_login(user)
        assert client.get(page(profile)).status_code == status
        assert client.post(page(profile), form(profile, model="z")).status_code == status
    clerk.user_permissions.add(Permission.objects.get(codename="change_modelprofile"))
    client = Client()
    client.force_login(clerk)
    assert client.post(page(profile), form(profile, model="z")).status_code == 302
    assert ModelProfile.objects.get().model == "z"


async def test_a_new_profile_is_tested_as_it_is_saved(root: User) -> None:
    client = AsyncClient()
    await client.aforce_login(root)
    path = reverse("admin:tasks_modelprofile_add")
    assert "Save and test the connection" in (await client.get(path)).content.decode()
    async with ProviderServer(obedient=obedient) as server:
        blank = ModelProfile(name="Main", model="x", base_url=server.url("obedient"))
        done = await client.post(path, form(blank, new_key=CANARY, _try="1"))
    profile = await ModelProfile.objects.aget()
    assert done.status_code == 302
    assert done["Location"] == page(profile)
    said = (await client.get(page(profile))).content.decode()
    assert "Main, tool call: it called echo" in said


@pytest.mark.parametrize("how", ["button", "action"])
async def test_the_admin_tests_a_connection(root: User, how: str) -> None:
    client = AsyncClient()
    await client.aforce_login(root)
    async with ProviderServer(obedient=obedient) as server:
        profile = await sync_to_async(make_profile)(base_url=server.url("obedient"), key=CANARY)
        if how == "button":
            done = await client.post(page(profile), form(profile, _try="1"))
            assert done.status_code == 302
            shown = await client.get(page(profile))
        else:
            path = reverse("admin:tasks_modelprofile_changelist")
            chosen = {"action": "try_out", "_selected_action": [str(profile.pk)]}
            await client.post(path, chosen)
            shown = await client.get(path)
    said = shown.content.decode()
    assert "Main, tool call: it called echo" in said
    assert "CANARY" not in said
