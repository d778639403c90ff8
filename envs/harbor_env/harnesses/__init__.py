"""One file of facts per harness; `HARNESSES` closes the package."""
