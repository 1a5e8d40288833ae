"""Ctrl-C at a chosen moment."""


def interrupt_at(monkeypatch, owner, name, call):
    """Raise KeyboardInterrupt in place of one call; the list counts them, clear it."""
    plain, calls = getattr(owner, name), []

    def interrupted(*args, **options):
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return plain(*args, **options)

    monkeypatch.setattr(owner, name, interrupted)
    return calls
