"""The agent: election, sessions of this replica's workers, reclaiming the runs of dead ones."""
