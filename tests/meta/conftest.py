"""The example plugin is a distribution of its own: its tests run where it is installed."""

collect_ignore = ["example_plugin"]
