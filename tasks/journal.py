"""What a run stores, in order, and what others store meanwhile.

A command for each event would be most of a step's cost. What changes nothing outside, a finished
reply or a read, may wait a moment for what comes after it, and both are stored by one command:

1. Before an effect begins, before the model is asked and before the run stops, everything is
   committed. A crash loses at most what can be asked, or read, again.
2. Nothing waits longer than `WAIT_SECONDS`, and nothing is shown to anybody before it is committed.
3. What others stored (a steering message) is noticed by the gap in the sequence and folded in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from channels.db import database_sync_to_async

from agent.entries import Place
from agent.events import (
    ContextCompacted,
    LiveEvent,
    ModelCallFinished,
    ModelCallStarted,
    StoredEvent,
)
from agent.transcript import Transcript
from tasks import endings, events, usage
from tasks.endings import RunEnd
from tasks.events import Appended, FenceLost, Head, Wanted
from tasks.models import Task
from tasks.statements import Sql
from tasks.usage import Charge
from tasks.writer import Together, writer

WAIT_SECONDS = 0.1
PAID = (ModelCallFinished, ContextCompacted)

Observer = Callable[[int, LiveEvent | None], None]
"""Called on the event loop with the newest sequence that the run knows to be stored, and the live
event that came after it; None says that something was stored. Must return at once."""
T = TypeVar("T")


class Journal:
    """Of one run. Each event is taken before the transcript holds it."""

    def __init__(
        self,
        task: Task,
        run: int,
        head: Head,
        model: str,
        lost: Callable[[], None],
        observe: Observer | None = None,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self.transcript = Transcript()
        self.head = head
        """Where the log ends as far as we know, which is what the transcript holds."""
        self._task = task
        self._run = run
        self._wait_seconds = wait_seconds
        self._lost = lost
        """Called when another run owns the task. Who stored may hear it late: beside a flush, or a
        progress, a tool is running."""
        self._observe = observe
        self._waiting: list[StoredEvent] = []
        self._charges: list[Charge] = []
        self._counters: dict[str, Any] = {}
        """What the task's row will say of its use, and of its newest summary; empty: what it says."""
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._flush: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        """Of a flush that nobody waited for."""
        self._model = model
        """Whom the engine asked last."""
        self._charged_at = asyncio.get_running_loop().time()
        """Loop time up to which working time is charged."""

    @property
    def known(self) -> int:
        """The newest event that the transcript holds."""
        return self.head.sequence

    def defer(self, batch: Sequence[StoredEvent]) -> None:
        """Store these soon."""
        self._take(batch)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._wait_seconds, self._begin_flush)

    async def store(self, batch: Sequence[StoredEvent]) -> None:
        """Store these, and what waits, before anything else happens."""
        self._take(batch)
        await self.settle()

    async def settle(self) -> None:
        """Nothing waits any more. Raises what kept it from being stored, FenceLost above all."""
        async with self._lock:
            if self._failure is not None:
                raise self._failure
            self._stop_timer()
            if self._waiting:
                command = self._command()
                self._forget()  # it is executed whether or not somebody waits for its end
                try:
                    stored = await writer.run(command)
                except FenceLost:
                    self._lost()
                    raise
                await self._catch_up(stored)
                if self._observe is not None:
                    self._observe(self.known, None)

    def _command(self) -> Callable[[], Appended]:
        counters = self._counters or endings.usage_fields(self.transcript.spent)
        if "compacted_at" in counters:
            append = partial(
                events.append,
                self._task.pk,
                self._waiting,
                fence=self._run,
                changes=counters,
            )
            return partial(_charged, append, self._task, self._charges)
        wanted = Wanted(
            task_id=self._task.pk,
            session_id=self._task.session_id,
            run=self._run,
            head=self.head,
            events=self._waiting,
            fields=counters,
        )
        return _Storing(self._task, wanted, self._charges)

    async def end(self, ending: RunEnd) -> None:
        """Store what waits, and behind it the end. When it raises, everything still waits."""
        async with self._lock:
            if self._failure is not None:
                raise self._failure
            self._stop_timer()
            whole = replace(ending, before=[*self._waiting, *ending.before])
            await writer.run(_Ending(whole, self._charges))
            self._forget()

    async def close(self) -> None:
        """Store nothing more."""
        self._stop_timer()
        if self._flush is not None:
            await asyncio.wait({self._flush})

    async def read_on(self) -> None:
        """Fold in what others have stored by now."""
        await self.settle()
        newest = await database_sync_to_async(_last_sequence)(self._task.pk)
        await self._read_up_to(newest)

    # ── inside ────────────────────────────────────────────────────────────────────────────────

    def _take(self, batch: Sequence[StoredEvent]) -> None:
        self._waiting += batch
        for event in batch:
            if isinstance(event, ModelCallStarted):
                self._model = event.model
            elif isinstance(event, PAID):
                self._charges.append(self._charge(event))
                self._counters = self._counted(event)

    def _charge(self, event: ModelCallFinished | ContextCompacted) -> Charge:
        """What it adds to the use of session, person and day."""
        now = asyncio.get_running_loop().time()
        seconds, self._charged_at = now - self._charged_at, now
        model = event.model if isinstance(event, ContextCompacted) else self._model
        return Charge(model=model, event=event, seconds=seconds)

    def _counted(self, event: ModelCallFinished | ContextCompacted) -> dict[str, Any]:
        spent = replace(self.transcript.spent)
        spent.add(event)
        fields = endings.usage_fields(spent)
        if isinstance(event, ContextCompacted):  # never waits, so it is the last of its command
            fields["compacted_at"] = Sql("last_sequence")
        return fields

    def _begin_flush(self) -> None:
        self._flush = asyncio.get_running_loop().create_task(self._settle_alone())

    async def _settle_alone(self) -> None:
        try:
            await self.settle()
        except Exception as error:  # noqa: BLE001 - whoever stores the next event must hear it
            self._failure = error

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _forget(self) -> None:
        self._waiting, self._charges, self._counters = [], [], {}

    async def _catch_up(self, stored: Appended) -> None:
        """Fold in what others stored before our own events."""
        if stored.first_sequence != self.known + 1:
            await self._read_up_to(stored.first_sequence - 1)
        self.head = stored.head
        self._mark(self.known)

    async def _read_up_to(self, last: int) -> None:
        missing = last - self.known
        rows = await database_sync_to_async(events.page)(self._task.pk, self.known, missing)
        for row in rows:
            self._mark(row.sequence)
            self.transcript.apply(events.typed(row))
            self.head = Head(
                sequence=row.sequence,
                hash=row.hash,
                time=row.created_at,
                position=row.position,
            )

    def _mark(self, sequence: int) -> None:
        """Tell the fold where the event stands that it takes next."""
        self.transcript.place = Place(task_id=str(self._task.pk), sequence=sequence)


class _Storing(Together[Appended]):
    """Command: what a run stores of its steps, together with what other runs store just then."""

    def __init__(self, task: Task, wanted: Wanted, charges: Sequence[Charge]) -> None:
        self._task = task
        self._wanted = wanted
        self._charges = charges

    def __call__(self) -> Appended:
        wanted = self._wanted
        append = partial(
            events.append, wanted.task_id, wanted.events, fence=wanted.run, changes=wanted.fields
        )
        return _charged(append, self._task, self._charges)

    @staticmethod
    def together(commands: Sequence[_Storing]) -> list[Appended]:
        stored = events.append_together([each._wanted for each in commands])
        usage.charge(*((each._task, each._charges) for each in commands))
        return stored


class _Ending(Together[None]):
    """Command: the end of a run, together with those of other runs where all are answers."""

    def __init__(self, ending: RunEnd, charges: Sequence[Charge]) -> None:
        self._ending = ending
        self._charges = charges

    def __call__(self) -> None:
        _charged(partial(endings.end_run, self._ending), self._ending.task, self._charges)

    @staticmethod
    def together(commands: Sequence[_Ending]) -> Sequence[None]:
        # Alone it need not know what else its session has stored.
        if len(commands) == 1 or not all(each._ending.is_an_answer for each in commands):
            for each in commands:
                each()
        else:
            endings.end_together([each._ending for each in commands])
            usage.charge(*((each._ending.task, each._charges) for each in commands))
        return [None] * len(commands)


def _charged(command: Callable[[], T], task: Task, charges: Sequence[Charge]) -> T:
    """Command: events and what they cost, together."""
    done = command()
    usage.charge((task, charges))
    return done


def _last_sequence(task_id: UUID) -> int:
    return Task.objects.values_list("last_sequence", flat=True).get(pk=task_id)
