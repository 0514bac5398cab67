"""The elector of one replica."""
