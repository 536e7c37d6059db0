"""`report`: the GPUs that each group held and used in a span, and their cost.

Pure, but for command.py and what asks or waits: history/ and interrupt.py.
"""
