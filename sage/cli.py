"""What every command line of the project shares: one-line errors and exit statuses."""

import sys
from collections.abc import Callable

from sage.errors import UserError


def entry(main: Callable[[], None]) -> None:
    """Run ``main``; a :class:`UserError` becomes one line on stderr and exit status 2."""
    try:
        main()
    except UserError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2) from None
    except BrokenPipeError:
        raise SystemExit(141) from None
