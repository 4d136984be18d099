"""``python -m fabricd`` is the ``fabricd`` command."""

import sys

from fabricd.cli import main

sys.exit(main())
