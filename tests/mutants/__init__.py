"""What the tests notice of faults made on purpose: by rules (`make mutants ROOM=ownership`), by hand (`… FAULTS=1`).

A fault that no test notices says which test is missing. Why not a library: mutmut 3 leaves out functions with a
decorator, so each property, and all that stands outside of functions, so each limit and default; it takes no sample.
Cosmic Ray starts a program for each fault, which runs all tests. Here a fork of one pytest, which has imported all,
runs only the tests that reach the changed line.
"""
