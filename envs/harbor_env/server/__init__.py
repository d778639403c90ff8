"""The OpenEnv environment server."""
