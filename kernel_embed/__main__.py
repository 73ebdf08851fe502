"""``python -m kernel_embed`` is the command ``kernel-embed``."""

import sys

from .cli import main

sys.exit(main())
