"""The page for people, at / of every role.

A table that needs no script, and one script that keeps it up to date.
"""
