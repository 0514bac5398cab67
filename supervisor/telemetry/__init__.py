"""What the tree says of itself: logs and metrics. Every process of it imports this package."""
