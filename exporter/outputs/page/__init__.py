"""The page for people, at / of every role: a table that needs no script, and one script that keeps it up to date."""
