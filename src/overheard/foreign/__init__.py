"""How files that strangers made are opened: bounded, never executed, never leading elsewhere.

SECURITY.md states what is promised; `limits` holds every bound, `files` opens plain files only,
`notation` reads JSON and TOML, `columns` a recording's tables, `parquet` and `texts` the user's,
`archives` single members of packages, and `shown` makes a stranger's text safe to print.
"""
