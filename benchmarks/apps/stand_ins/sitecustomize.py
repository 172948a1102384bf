"""Python loads this at its start where the folder is on PYTHONPATH: also in the processes that a framework starts."""

import app_stand_ins

app_stand_ins.install()
