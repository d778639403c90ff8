"""Sandboxes: the local one (namespaces) and every Harbor backend by name."""
