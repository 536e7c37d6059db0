"""`top`: GPUs and the pods on them, in a terminal.

Answers → devices → lines is pure; I/O has files of its own.
"""
