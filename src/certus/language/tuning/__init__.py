"""Models tuned on demonstrations, preferences and rewards, and the best policy."""
