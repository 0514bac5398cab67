"""A kit for tests of programs that use Tenure: a whole cluster in one thread, under a driven clock."""
