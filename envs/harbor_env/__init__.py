"""Harbor tasks and unmodified coding agents as an OpenEnv environment, with exact token capture."""
