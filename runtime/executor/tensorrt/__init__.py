"""The engine that runs on a GPU. No module here loads torch or tensorrt when it is imported: functions do.

Nothing of it has run on a GPU; docs/tensorrt.md says what has been shown how.
"""
