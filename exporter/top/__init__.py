"""`top`: GPUs and the pods on them, in a terminal. What is shown is pure (answers → devices → lines); I/O is apart."""
