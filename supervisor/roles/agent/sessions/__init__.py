"""Worker sessions: beats, reaping, cancellation."""
