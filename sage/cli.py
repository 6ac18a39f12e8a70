"""What every command line of the project shares: one-line errors and exit statuses."""

import sys
from collections.abc import Callable

from sage.errors import Stopped, UserError

FAILED = 2
STOPPED = 75  # EX_TEMPFAIL of sysexits.h: try again


def entry(main: Callable[[], None]) -> None:
    """Run ``main``; a :class:`UserError` becomes one line on stderr and exit status 2, :class:`Stopped` one and 75."""
    try:
        main()
    except UserError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(FAILED) from None
    except Stopped as stop:
        print(stop, file=sys.stderr)
        raise SystemExit(STOPPED) from None
    except BrokenPipeError:
        raise SystemExit(141) from None
