"""Leadership for programs: the election of the replicas, on a lease of the program's own."""
