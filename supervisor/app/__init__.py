"""The composition root. A command imports the part it needs: what starts a tree costs a second of imports."""
