"""What the tests notice of faults made on purpose: by rules (`make mutants ROOM=ownership`), by hand (`… FAULTS=1`).

A fault that no test notices shows which test is missing. Why not a library: mutmut 3 changes no function with a
decorator, hence no property, and nothing outside of functions, hence no limit and no default; it cannot take a sample.
Cosmic Ray starts a program for each fault, which runs all tests. Here one pytest imports everything once, and a fork of
it for each fault runs only the tests that reach the changed line.
"""
