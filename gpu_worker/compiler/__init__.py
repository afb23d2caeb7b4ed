"""From a tokenizer to the tables that the kernels read."""
