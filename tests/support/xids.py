"""Which XIDs are no errors, by NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors), beside the program's table."""

# of tests (14, 106, 107); a recovery action that changed (154), and a capability that is back (162)
OF_NOBODY = frozenset({0, 14, 106, 107, 154, 162})
# A program came to its end: by a fault of its own, "the GPU remains in a healthy state" (43); by Ctrl-C, a signal or an
# error before (45).
OF_A_PROGRAM_S_END = frozenset({43, 45})
INFORMING = OF_NOBODY | OF_A_PROGRAM_S_END
