"""The command line: talks to people, imports heavy things only inside commands."""
