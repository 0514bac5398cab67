"""The parent and its machinery: fork, watch, stop. One thread, no event loop, no Redis, no HTTP."""
