"""The tests. A package, so that `tests.tokenizers` never shadows the `tokenizers` library."""
