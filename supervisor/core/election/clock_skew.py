"""Clock skew: difference of this machine's wall clock from Redis', and its limit.

Which of the two is wrong cannot be decided here: who compares several machines can.

Time enters as an argument. Nothing here reads a clock, sleeps or logs.
"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.units import MILLISECOND_NS

SKEW_MS_MAX = 500
"""Further apart is skewed; ``fire`` refuses what is further ahead."""

ROUND_TRIP_NS_MAX = 500 * MILLISECOND_NS
"""Half a round trip is the error of a measurement; a slower answer only bounds the skew."""


@dataclass(frozen=True, slots=True)
class Skew:
    """The newest measurement."""

    ms: int = 0  # positive: this machine's clock is ahead
    is_over: bool = False

    def measured(self, *, wall_ms: int, redis_ms: int, round_trip_ns: int) -> Skew:
        """Return the skew after an answer.

        Args:
            wall_ms: this machine's clock when the answer was there.
            redis_ms: Redis' clock when it answered, taken to be half way.
            round_trip_ns: from the question to after ``wall_ms`` was read.
        """
        assert round_trip_ns >= 0
        most_ms, round_trip_ms = wall_ms - redis_ms, round_trip_ns // MILLISECOND_NS
        ms = most_ms - round_trip_ms // 2
        if round_trip_ns > ROUND_TRIP_NS_MAX:  # Redis read its clock at some time between: what is known may be true
            ms = min(max(self.ms, most_ms - round_trip_ms), most_ms)
        # Once over, it must come well below, so that one that is near the limit is not told of every second.
        return Skew(ms, abs(ms) > (SKEW_MS_MAX // 2 if self.is_over else SKEW_MS_MAX))

    def is_worse_than(self, other_ms: int) -> bool:
        """Return whether another's clock, that many ms from Redis', is twice as good if it is right, else ten times."""
        return (2 if abs(other_ms) <= SKEW_MS_MAX else 10) * abs(other_ms) < abs(self.ms)
