"""Events over HTTP: storage, streams, webhook."""
