"""A rank that never says anything: `python -m jackfield.core.testing.silent_rank`."""

import time

time.sleep(60)
