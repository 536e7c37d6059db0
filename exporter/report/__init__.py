"""Reports on a span of time: the GPUs that each group held and used, costs, and the forms of a report. Pure."""
