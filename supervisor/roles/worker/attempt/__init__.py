"""One attempt of a run: from the fetched envelope to its acknowledgement."""
