"""Fresh identities of runs, many at a time. The core draws nothing: entropy is handed in."""

from __future__ import annotations

ENTROPY_BYTES = 10  # for each id


def fresh_run_ids(wall_ms: int, entropy: bytes) -> list[str]:
    """Return a UUIDv7 (RFC 9562, 5.7) for each ten bytes of ``entropy``, which is random.

    They sort by time, and 74 random bits distinguish runs of one millisecond. ``wall_ms`` is the producer's clock.
    """
    assert len(entropy) % ENTROPY_BYTES == 0
    at = f"{wall_ms & (1 << 48) - 1:012x}"
    head = f"{at[:8]}-{at[8:]}-7"
    drawn = entropy.hex()
    # Of the 80 bits, two give way to the variant; the digit 8, 9, a or b carries the two left of its four.
    return [
        f"{head}{drawn[i : i + 3]}-{'89ab'[int(drawn[i + 3], 16) & 3]}{drawn[i + 4 : i + 7]}-{drawn[i + 7 : i + 19]}"
        for i in range(0, len(drawn), 2 * ENTROPY_BYTES)
    ]
