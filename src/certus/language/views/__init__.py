"""What people look at: surprise, attention, the use of context."""
