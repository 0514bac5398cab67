"""Operating system interfaces: signals, cgroups, systemd, child reaping."""
