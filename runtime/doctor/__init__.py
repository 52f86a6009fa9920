"""`jetway doctor`: whether this machine, and an engine on it, does what it should; one report to attach to an issue."""
