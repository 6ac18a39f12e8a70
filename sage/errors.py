"""The exceptions that are no bugs: a mistake of the user's, and an end that was asked for."""


class UserError(Exception):
    """A mistake in the input: its message is one line that names the file, the key and the fix."""


class Stopped(Exception):
    """A signal has ended the work before its end; everything that was finished is kept, and the same command goes on."""


def nearest(word: str, known: list[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the closest of ``known``, else ``" (known: ...)"``."""
    import difflib

    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f" (did you mean '{close[0]}'?)" if close else f" (known: {', '.join(sorted(known))})"
