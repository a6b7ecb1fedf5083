"""What answers say of the server that gave them."""

from jackfield import __version__

FINGERPRINT = f"jackfield-{__version__}"
"""Seeded answers may change when this does."""
