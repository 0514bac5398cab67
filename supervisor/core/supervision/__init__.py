"""State machines of slots, pools and the tree; the layout of the scoreboard."""
