"""``python -m tosca_avalanche``: the command line."""

import sys

from tosca_avalanche.cli import main

if __name__ == "__main__":
    sys.exit(main())
