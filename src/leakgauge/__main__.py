"""`python -m leakgauge`."""

from leakgauge.entry import main

raise SystemExit(main())
