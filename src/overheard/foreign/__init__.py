"""How foreign files are opened: bounded, never executed, never leading elsewhere.

SECURITY.md states what is promised; `limits` holds every bound, `files` opens plain files only and
reads JSON and TOML, `tables` reads tables, and `shown` makes foreign text printable.
"""
