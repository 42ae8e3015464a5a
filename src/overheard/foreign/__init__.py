"""How files that strangers made are opened: bounded, never executed, never leading elsewhere.

SECURITY.md states what is promised; `limits` holds every bound, `files` opens plain files only and
reads JSON and TOML, `tables` reads tables, and `shown` makes a stranger's text safe to print.
"""
