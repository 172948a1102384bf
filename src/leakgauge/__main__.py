"""`python -m leakgauge`."""

from leakgauge.cli import main

raise SystemExit(main())
