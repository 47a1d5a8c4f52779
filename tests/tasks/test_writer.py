from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, connections, transaction
from django.db.models import Value
from django.db.models.functions import Concat

from tasks.errors import NotFound
from tasks.loops import on_loop
from tasks.models import Task
from tasks.writer import MAX_BATCH, Together, Writer, WriterUnavailable
from tests.support.counting import circles, python_calls
from tests.support.rows import make_session, make_task

pytestmark = pytest.mark.django_db(transaction=True)
OPEN_FILES = Path("/proc/self/fd")


@pytest.fixture
def writer() -> Iterator[Writer]:
    instance = Writer()
    yield instance
    instance.stop()


@contextlib.contextmanager
def held(writer: Writer) -> Iterator[None]:
    """While it is open the writer is busy: what is submitted inside becomes one batch."""
    entered, release = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        release.wait(10)

    thread = threading.Thread(target=writer.run_sync, args=(hold,))
    thread.start()
    entered.wait(10)
    try:
        yield
    finally:
        release.set()
        thread.join()


def submit(writer: Writer, *commands: Callable[[], Any]) -> asyncio.Future[list[Any]]:
    """Queue commands in this order; their outcomes later, exceptions as values."""
    tasks = [asyncio.ensure_future(writer.run(command)) for command in commands]
    return asyncio.gather(*tasks, return_exceptions=True)


async def in_one_batch(writer: Writer, *commands: Callable[[], Any]) -> list[Any]:
    with held(writer):
        outcomes = submit(writer, *commands)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return await outcomes


def groups() -> set[str]:
    return set(Group.objects.values_list("name", flat=True))


def add(name: str) -> str:
    return str(Group.objects.create(name=name).name)


def test_it_works(writer):
    assert writer.run_sync(lambda: add("one")) == "one"
    assert groups() == {"one"}


async def test_awaiting_gives_the_result(writer):
    assert await writer.run(lambda: add("one")) == "one"


def test_any_loop_may_wait(writer: Writer) -> None:
    async def ask(number: int) -> str:
        return await writer.run(lambda: add(f"loop {number}"))

    def in_loop_of_its_own(number: int) -> None:
        asyncio.run(ask(number))

    threads = [threading.Thread(target=in_loop_of_its_own, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert groups() == {f"loop {n}" for n in range(4)}


async def test_refused_command_fails_alone(writer):
    def refused() -> None:
        add("half")
        raise ValueError("no")

    before, error, twice, after = await in_one_batch(
        writer,
        lambda: add("before"),
        refused,
        lambda: [add("twice"), add("twice")],
        lambda: add("after"),
    )
    assert (before, after) == ("before", "after")
    assert isinstance(error, ValueError)
    assert isinstance(twice, IntegrityError)
    assert await writer.run(groups) == {"before", "after"}


async def test_a_refusal_leaves_nothing_to_the_collector(writer):
    def refuse() -> None:
        raise NotFound("task")

    with circles() as found:
        with contextlib.suppress(NotFound):
            await writer.run(refuse)
        await writer.run(int)  # the thread has forgotten its last batch
    assert not found


async def test_bells_ring_after_commit_in_order_and_before_anybody_is_told(writer):
    story: list[str] = []

    def command(name: str) -> Callable[[], None]:
        def run() -> None:
            story.append(f"run {name}")
            transaction.on_commit(lambda: story.append(f"bell {name}"))
            if name == "b":
                raise ValueError

        return run

    async def told(name: str) -> None:
        with contextlib.suppress(ValueError):
            await writer.run(command(name))
        story.append(f"told {name}")

    with held(writer):
        waiting = asyncio.gather(*(told(name) for name in "abc"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await waiting
    spoiled, runs, bells = ["run a", "run b"], ["run a", "run b", "run c"], ["bell a", "bell c"]
    assert story == [*spoiled, *runs, *bells, "told a", "told b", "told c"]


async def test_broken_bell_silences_no_other(writer, caplog):
    heard: list[str] = []

    def broken() -> str:
        transaction.on_commit(lambda: [][1])
        return add("one")

    def sound() -> str:
        transaction.on_commit(lambda: heard.append("two"))
        return add("two")

    with caplog.at_level(logging.ERROR):
        assert await in_one_batch(writer, broken, sound) == ["one", "two"]
    assert heard == ["two"]
    assert "IndexError" in caplog.text


async def test_cancelled_caller_does_not_take_the_command_back(writer):
    with held(writer):
        task = asyncio.ensure_future(writer.run(lambda: add("still")))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        assert task.cancelled()
    assert await writer.run(groups) == {"still"}


async def test_more_than_a_batch_waits_its_turn(writer):
    numbers = list(range(MAX_BATCH * 2 + 7))
    order: list[int] = []
    await in_one_batch(writer, *(lambda n=n: order.append(n) for n in numbers))
    assert order == numbers


def test_submitting_inside_a_transaction_is_refused(writer):
    with transaction.atomic(), pytest.raises(RuntimeError, match="transaction is open"):
        writer.run_sync(lambda: add("never"))
    assert groups() == set()


def test_a_command_cannot_wait_for_another(writer):
    with pytest.raises(RuntimeError, match="inside a command"):
        writer.run_sync(lambda: writer.run_sync(lambda: add("never")))
    with pytest.raises(RuntimeError, match="inside a command"):
        writer.run_sync(writer.stop)


async def test_blocking_the_event_loop_is_refused(writer):
    with pytest.raises(RuntimeError, match="event loop"):
        writer.run_sync(lambda: add("never"))


def test_stop_executes_what_waits_and_the_next_command_starts_again(writer):
    async def scenario() -> list[str]:
        with held(writer):
            outcomes = submit(writer, *(lambda n=n: add(f"g{n}") for n in range(5)))
            await asyncio.sleep(0)
            stopping = threading.Thread(target=writer.stop)
            stopping.start()
        result = await outcomes
        stopping.join()
        return result

    assert asyncio.run(scenario()) == [f"g{n}" for n in range(5)]
    assert writer.run_sync(lambda: add("again")) == "again"
    writer.stop()
    writer.stop()


async def test_constraint_that_speaks_at_commit_fails_only_its_command(writer):
    session = await writer.run(make_session)
    missing = "00000000-0000-0000-0000-000000000001"

    def orphan() -> None:
        owner, workspace = session.owner_id, session.workspace_id
        known = {"owner_id": owner, "workspace_id": workspace, "created_by_id": owner}
        task = Task(session_id=missing, goal="x", trigger="api", **known)
        Task.objects.bulk_create([task])

    one, error, two = await in_one_batch(writer, lambda: add("one"), orphan, lambda: add("two"))
    assert (one, two) == ("one", "two")
    assert isinstance(error, IntegrityError)
    assert await writer.run(groups) == {"one", "two"}


async def test_connection_lost_in_a_batch_is_opened_again_and_nothing_is_doubled(writer):
    attempts: list[str] = []

    def unlucky() -> str:
        attempts.append("x")
        if len(attempts) == 1:
            connection.connection.close()
        return add("two")

    outcomes = await in_one_batch(
        writer, lambda: add("one"), unlucky, lambda: add("three"), lambda: [][1]
    )
    assert outcomes[:3] == ["one", "two", "three"]
    assert isinstance(outcomes[3], IndexError)
    assert len(attempts) == 2
    assert await writer.run(groups) == {"one", "two", "three"}


async def test_unreachable_database_is_told_to_everybody(writer, monkeypatch):
    settings = connections["default"].settings_dict
    with monkeypatch.context() as patch:  # the real driver, sent to where nothing is
        patch.setitem(settings, "NAME", "/nonexistent/folder/database")
        patch.setitem(settings, "PORT", "1")
        outcomes = await submit(writer, *(lambda n=n: add(f"g{n}") for n in range(3)))
    assert [type(outcome) for outcome in outcomes] == [WriterUnavailable] * 3
    assert not any(outcome.unknown for outcome in outcomes)
    assert await writer.run(lambda: add("back")) == "back"
    assert await writer.run(groups) == {"back"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_dead_thread_fails_what_it_held_and_is_replaced(writer, caplog):
    async def scenario() -> list[object]:
        entered = threading.Event()

        def long() -> None:
            entered.set()
            while True:
                threading.Event().wait(0.001)

        outcomes = submit(writer, long, lambda: add("never"))
        await asyncio.to_thread(entered.wait, 10)
        thread = ctypes.c_ulong(writer._thread.ident)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(SystemExit))
        return await outcomes

    inside, behind = asyncio.run(scenario())
    assert isinstance(inside, WriterUnavailable)
    assert isinstance(behind, WriterUnavailable)
    assert "writer thread ends" in caplog.text
    assert writer.run_sync(lambda: add("next")) == "next"
    assert groups() == {"next"}


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_child_has_a_writer_of_its_own(writer):
    writer.run_sync(lambda: add("parent"))
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if writer.run_sync(lambda: add("child")) == "child" else 2)
        finally:
            os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert writer.run_sync(groups) == {"parent", "child"}


@pytest.mark.only_postgresql  # SQLite locks no rows
async def test_locked_row_does_not_hold_up_the_batch(writer):
    first = await writer.run(make_task)
    locked, release = threading.Event(), threading.Event()

    def hold_row() -> None:
        with transaction.atomic():
            Task.objects.filter(pk=first.pk).update(goal="held")
            locked.set()
            release.wait(10)
        connection.close()

    holder = threading.Thread(target=hold_row)
    holder.start()
    await asyncio.to_thread(locked.wait, 10)
    with held(writer):
        blocked = asyncio.ensure_future(
            writer.run(lambda: Task.objects.filter(pk=first.pk).update(goal="mine"))
        )
        free = asyncio.ensure_future(writer.run(lambda: add("free")))
        await asyncio.sleep(0)
    assert await free == "free"
    assert not blocked.done()
    release.set()
    assert await blocked == 1
    holder.join()
    assert (await writer.run(lambda: Task.objects.get(pk=first.pk))).goal == "mine"


@pytest.mark.only_postgresql  # SQLite's lock ends with the process
async def test_a_transaction_that_stands_still_is_ended_on_every_connection(writer):
    def asked(statement: str) -> str:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return str(cursor.fetchone()[0])

    patience = partial(asked, "SHOW idle_in_transaction_session_timeout")
    assert await writer.run(patience) == "5s"
    with pytest.raises(WriterUnavailable):
        await writer.run(partial(asked, "SELECT pg_terminate_backend(pg_backend_pid())"))
    assert await writer.run(patience) == "5s"


@pytest.mark.only_postgresql  # needs a server that can vanish
async def test_connection_lost_during_commit_is_told_as_unknown(writer):
    def vanish_at_commit() -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "CREATE FUNCTION vanish() RETURNS trigger LANGUAGE plpgsql AS"
                " $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$"
            )
            cursor.execute(
                "CREATE CONSTRAINT TRIGGER vanish AFTER INSERT ON auth_group"
                " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION vanish()"
            )
        add("x")

    one, two = await in_one_batch(writer, lambda: add("one"), vanish_at_commit)
    assert isinstance(one, WriterUnavailable)
    assert isinstance(two, WriterUnavailable)
    assert one.unknown
    assert two.unknown
    assert await writer.run(lambda: add("back")) == "back"


async def test_what_a_batch_leaves_for_a_loop_wakes_it_once_and_before_the_submitters(
    writer: Writer,
) -> None:
    loop = asyncio.get_running_loop()
    seen: list[str] = []

    def command(name: str) -> None:
        transaction.on_commit(partial(on_loop, loop, partial(seen.append, name)))

    def broken() -> None:
        raise ValueError

    async def submitter(name: str) -> None:
        await writer.run(partial(command, name))
        seen.append(f"{name} goes on")

    with held(writer):
        submitters = [asyncio.create_task(submitter(name)) for name in ("a", "b")]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    with python_calls() as names:
        await asyncio.gather(*submitters)
    assert seen == ["a", "b", "a goes on", "b goes on"]
    assert names.count("_run_all") == 1

    def ring_and_break() -> None:
        transaction.on_commit(partial(on_loop, loop, broken))

    await writer.run(ring_and_break)  # is not kept waiting
    await asyncio.to_thread(writer.run_sync, partial(command, "c"))
    assert seen[-1] == "c"


class Sum(Together[int]):
    """What all of its kind in a batch add up to: so it shows which were executed as one."""

    def __init__(self, number: int, *, fits: bool = True) -> None:
        self.number = number
        self.fits = fits

    def __call__(self) -> int:
        add(f"alone {self.number}")
        if not self.fits:
            raise ValueError("no")
        return self.number

    @staticmethod
    def together(commands: Sequence[Sum]) -> list[int]:
        add(f"together {[each.number for each in commands]}")
        if not all(each.fits for each in commands):
            raise RuntimeError("does not fit")
        return [sum(each.number for each in commands)] * len(commands)


async def test_commands_that_stand_side_by_side_are_executed_as_one(writer):
    results = await in_one_batch(writer, Sum(1), Sum(2), lambda: add("between"), Sum(4))
    assert results == [3, 3, "between", 4]
    assert await writer.run(groups) == {"together [1, 2]", "between", "together [4]"}


async def test_one_that_does_not_fit_fails_alone(writer):
    before, error, after = await in_one_batch(writer, Sum(1), Sum(2, fits=False), Sum(4))
    assert (before, after) == (1, 4)
    assert isinstance(error, ValueError)
    assert await writer.run(groups) == {"alone 1", "alone 4"}


@pytest.mark.skipif(not OPEN_FILES.is_dir(), reason="looks at the files that the process has open")
def test_a_statement_about_many_rows_makes_no_file_of_what_it_may_take_back(writer: Writer) -> None:
    """SQLite does, from the seventeenth page on, wherever it finds a folder for it."""
    Group.objects.bulk_create(Group(name=f"{number}{'x' * 100}") for number in range(1000))

    def rename() -> list[str]:
        assert Group.objects.update(name=Concat("name", Value("y"))) == 1000
        return [str(each.readlink()) for each in OPEN_FILES.iterdir() if each.is_symlink()]

    opened = writer.run_sync(rename)
    assert not [name for name in opened if "etilqs" in name]
