"""The same app with its server's eyes open: the one file that an audit adds. `$RECORDED` says where it writes."""

import os

from digits_app.server_app import app as theirs

from leakgauge.integrations.flower_recording import recorded_app

app = recorded_app(theirs, os.environ.get("RECORDED", "recorded"))
