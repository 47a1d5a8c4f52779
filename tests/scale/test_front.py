"""Behind deploy/nginx.conf, as compose.yaml puts it in front of the web processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import services
from tests.support.e2e_model import Hold, words
from tests.support.scaled import ScaledHouse, guess
from tests.support.services import Nginx


@pytest.fixture(scope="module")
def front(shared_house: ScaledHouse) -> Iterator[Nginx]:
    if absent := services.missing("nginx"):
        pytest.skip(f"the proxy needs {absent}")
    server = Nginx([web.port for web in shared_house.server.webs])
    yield server
    server.remove()


async def test_words_pass_as_they_are_spoken_and_a_dead_web_process_is_passed_over(
    house: ScaledHouse, front: Nginx
) -> None:
    pause = Hold()
    name = house.model.script("proxied", [*words(10), pause, *words(20)[10:]])
    async with house.person_at("alice", front.url) as alice:
        task = await alice.ask(house.desk(), f"[{name}] Go")
        async with alice.follow(task["id"]) as client:
            await client.words(10)
            house.server.webs[0].kill9()
            assert [(await alice.task(task["id"]))["id"] for _ in range(4)] == [task["id"]] * 4
            pause.release()
            await client.end()
        await house.check(alice, task["id"], client)


async def test_clients_are_told_apart_by_what_the_proxy_says(
    house: ScaledHouse, front: Nginx
) -> None:
    async with house.person_at("", front.url) as somebody:
        assert [await guess(somebody, "203.0.113.9") for _ in range(3)] == [200, 200, 429]
        assert await guess(somebody, "203.0.113.9, 203.0.113.10") == 200
