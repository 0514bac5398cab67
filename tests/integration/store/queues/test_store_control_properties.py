"""The same machine as in test_store_properties, with people in it, who cancel, hasten, move, requeue and mend."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import initialize, rule

from supervisor.core.effects import drive
from supervisor.operations.queues import verify
from supervisor.store.keys import Keys
from supervisor.store.queues.control import CancelCode, QueueControl, RequeueCode
from supervisor.store.queues.reads import PARTS
from tests.integration.store.queues.test_store_properties import QUEUE, Life
from tests.kit.builders import envelope

OTHER = "other"


class Control(Life):
    """Whatever people do in between, no run is lost, and none is held twice."""

    @initialize()
    def take_control(self) -> None:
        self.control = QueueControl(Keys("p"))
        self.cancelled: list[str] = []

    @rule(count=st.integers(1, 4), key=st.sampled_from("xy"), most=st.integers(1, 2), again=st.booleans())
    def enqueue_limited(self, count: int, key: str, most: int, *, again: bool) -> None:
        """So many with a key run at once."""
        ids = [f"l{self.number + i}" for i in range(count)]
        self.number += count
        runs = [envelope(run, concurrency=key, concurrency_max=most) for run in ids]
        assert all(
            one.is_new for one in self.call(self.queues.enqueue(nonce=ids[0], envelopes=runs), is_repeated=again)
        )
        self.alive |= set(ids)

    @rule(data=st.data(), again=st.booleans())
    def cancel(self, data: st.DataObject, *, again: bool) -> None:
        """Somebody cancels a run that waits."""
        if waiting := sorted(self.alive - set(self.holder)):
            run = data.draw(st.sampled_from(waiting))
            (found,) = self.call(self.control.cancel([("", run)]), is_repeated=again)
            assert found.code is CancelCode.CANCELLED  # sent again it gets its first answer
            self.alive.discard(run)
            self.cancelled.append(run)

    @rule(data=st.data(), priority=st.integers(0, 2), delay_ms=st.sampled_from([0, 3_600_000]))
    def enqueue_again(self, data: st.DataObject, priority: int, delay_ms: int) -> None:
        """The id of a cancelled run comes again, while its former entry may still be in a list."""
        if self.cancelled:
            run = data.draw(st.sampled_from(self.cancelled))
            self.cancelled.remove(run)
            self.number += 1
            call = self.queues.enqueue(
                nonce=f"again{self.number}", envelopes=[envelope(run, priority=priority)], delays_ms=[delay_ms]
            )
            assert self.store.run(call)[0].is_new
            self.alive.add(run)

    @rule(data=st.data(), priority=st.integers(0, 2), again=st.booleans())
    def set_priority(self, data: st.DataObject, priority: int, *, again: bool) -> None:
        if self.alive:
            run = data.draw(st.sampled_from(sorted(self.alive)))
            (found,) = self.call(self.control.set_priority([("", run)], priority), is_repeated=again)
            assert found.queue == QUEUE

    @rule(data=st.data(), again=st.booleans())
    def hasten(self, data: st.DataObject, *, again: bool) -> None:
        if self.alive:
            run = data.draw(st.sampled_from(sorted(self.alive)))
            self.call(self.control.hasten([("", run)]), is_repeated=again)
            assert self.raw.zscore(self.keys.later, run) is None

    @rule(again=st.booleans(), count=st.integers(1, 3))
    def move_there_and_back(self, count: int, *, again: bool) -> None:
        """Everything that waits goes to another queue, in pages that may be asked for twice, and comes back."""
        for source, target in ((QUEUE, OTHER), (OTHER, QUEUE)):
            waiting = self.store.run(self.queues.blocked(source)).items
            for part in (*PARTS, *(f"wait:{key}" for key in {key for _, key in waiting})):
                while self.call(self.control.move(source, target, part, count=count), is_repeated=again).seen:
                    pass
            assert self.store.run(self.queues.fsck(OTHER)) == []
        assert self.raw.hlen(Keys("p").queue(OTHER).data) == 0

    @rule(data=st.data(), again=st.booleans())
    def requeue(self, data: st.DataObject, *, again: bool) -> None:
        """A dead run runs again."""
        if dead := sorted(run.decode() for run in self.raw.zrange(self.keys.dead, 0, -1)):
            run = data.draw(st.sampled_from(dead))
            (found,) = self.call(self.control.requeue(QUEUE, [run]), is_repeated=again)
            assert found.code is (RequeueCode.ABSENT if again else RequeueCode.REQUEUED)
            self.alive.add(run)
            self.ended.remove(run)

    @rule()
    def mend(self) -> None:
        """A check finds nothing, and so mends nothing, while sessions are open that hold runs."""
        assert drive(verify(Keys("p"), [QUEUE], is_mending=True), self.store.run) == []


Control.TestCase.settings = settings(
    stateful_step_count=30,
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)


class TestControl(Control.TestCase):  # type: ignore[misc,valid-type]
    """Runs the machine under pytest."""
