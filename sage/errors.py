"""The one exception that stands for a mistake of the user's, as opposed to a bug."""


class UserError(Exception):
    """A mistake in the input: its message is one line that names the file, the key and the fix."""


def nearest(word: str, known: list[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the closest of ``known``, else ``" (known: ...)"``."""
    import difflib

    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f" (did you mean '{close[0]}'?)" if close else f" (known: {', '.join(sorted(known))})"
