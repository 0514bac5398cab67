"""The composition root. A command imports the part it needs: starting a tree costs a second of imports."""
