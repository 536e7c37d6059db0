"""The simulated node, against which the demo, the tests and the benchmarks run the real exporter."""
