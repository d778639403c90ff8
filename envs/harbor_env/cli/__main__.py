"""`python -m harbor_env.cli`, where no console script was installed."""

from harbor_env.cli import main

main()
