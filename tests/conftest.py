"""What holds for every test."""

import os

# As the command line sets it: torch's threads must not spin while they wait, or busy cores make them crawl.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
