"""``python -m pullback.cli``: the command without its script."""

import sys

from pullback.cli import main

sys.exit(main())
