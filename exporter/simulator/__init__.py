"""The simulated node, for the demo, the tests and the benchmarks."""
