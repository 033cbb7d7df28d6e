"""Replay servers: what waits for what."""

from __future__ import annotations

import asyncio

from rltune.agents.distributed.limiter import RateLimiter
from rltune.agents.distributed.policies import Policy
from rltune.agents.distributed.server import LOG, ROLLOUTS, ReplayServer, Summary
from rltune.agents.distributed.tables import QueueTable

from tests.agents.distributed.test_tables import fragment


def server(buffer: int) -> ReplayServer:
    tables = {ROLLOUTS: QueueTable(lambda given: given), LOG: QueueTable(Summary.of)}
    return ReplayServer(tables, RateLimiter(1, 0, buffer))


def policy(version: int) -> Policy:
    return Policy(version, {}, False, 0, {})


def test_actors_wait_for_the_learner_and_hear_of_newer_policies() -> None:
    async def run() -> None:
        made = server(buffer=10)
        assert await made.insert(fragment(0, 0, 5)) is None
        await made.publish(policy(7))
        newer = await made.insert(fragment(0, 5, 5))
        assert newer is not None
        assert newer.version == 7
        third = asyncio.create_task(made.insert(fragment(0, 10, 5)))
        await asyncio.sleep(0.05)
        assert not third.done()
        await made.take(ROLLOUTS, 1, 1, learned=5)
        await asyncio.wait_for(third, 5)

    asyncio.run(run())


def test_every_table_takes_in_every_fragment_and_the_learner_waits_for_enough() -> None:
    async def run() -> None:
        made = server(buffer=100)
        taken = asyncio.create_task(made.take(ROLLOUTS, 2, 2, learned=0))
        await made.insert(fragment(0, 0, 5))
        await asyncio.sleep(0.05)
        assert not taken.done()
        await made.insert(fragment(1, 0, 5))
        assert [f.actor for f in await taken] == [0, 1]
        assert [s.actor for s in await made.take(LOG, 1, 10, learned=0)] == [0, 1]

    asyncio.run(run())


def test_a_new_actor_waits_for_the_first_policy() -> None:
    async def run() -> None:
        made = server(buffer=10)
        waiting = asyncio.create_task(made.newest())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await made.publish(policy(0))
        assert (await asyncio.wait_for(waiting, 5)).version == 0

    asyncio.run(run())
