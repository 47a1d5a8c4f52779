"""Is a task's log whole? Follows its hash chain row by row to the head on the task row.

Holds no lock and can run beside a working server: rows are streamed, and a task that grows
meanwhile is read on until its head is reached.
"""

from __future__ import annotations

import uuid
from typing import NamedTuple

from tasks import events
from tasks.models import Task, Tombstone


class Chain(NamedTuple):
    """How far a task's chain is whole, and what is wrong behind that."""

    sequence: int = 0
    hash: str = ""
    position: int = 0
    problem: str = ""


class Head(NamedTuple):
    """What the task row says about its chain."""

    last_sequence: int
    last_hash: str
    session_id: uuid.UUID


def verify_task(task_id: uuid.UUID) -> Chain:
    """Follow the chain to its head, from the tombstone where events were pruned. An append may move
    the head meanwhile: then a little further."""
    chain = begins(task_id)
    while True:
        head = Head(*Task.objects.values_list(*Head._fields).get(pk=task_id))
        before = chain.sequence
        for row in events.stream(task_id, before or None):
            chain = follow(chain, row, str(head.session_id))
            if chain.problem:
                return chain
        if chain.sequence == before:
            return compare(chain, head)


def begins(task_id: uuid.UUID) -> Chain:
    """Nothing yet, or what the tombstone of pruned events says of them."""
    stone = Tombstone.objects.filter(task_id=task_id).values_list("sequence", "hash").first()
    return Chain() if stone is None else Chain(*stone)


def follow(chain: Chain, row: events.Row, session_id: str) -> Chain:
    """The chain with its next row, or with what is wrong about it."""
    expected = chain.sequence + 1
    if row.sequence != expected:
        return chain._replace(
            problem=f"sequence {min(row.sequence, expected)} is missing or misplaced"
        )
    if row.hash != events.link(chain.hash, row) or row.created_at.microsecond % 1000:
        return chain._replace(problem=f"sequence {expected} does not match its hash")
    if row.session_id != session_id or row.position <= chain.position:
        return chain._replace(problem=f"sequence {expected} has another place in its session")
    return Chain(row.sequence, row.hash, row.position)


def compare(chain: Chain, head: Head) -> Chain:
    """Nothing follows in the table: the task row must agree."""
    if head.last_sequence > chain.sequence:
        return chain._replace(problem=f"sequence {chain.sequence + 1} is missing at the end")
    if head.last_sequence < chain.sequence:
        return chain._replace(
            problem=f"sequence {head.last_sequence + 1} is behind the task's head"
        )
    if head.last_hash != chain.hash:
        return chain._replace(problem=f"sequence {chain.sequence} is not the task's head")
    return chain
